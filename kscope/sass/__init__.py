"""Machine code: read a cubin, insert instructions, check the result; docs/design/sass.md has the picture."""
