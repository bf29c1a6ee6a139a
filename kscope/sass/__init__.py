"""Machine code: read a cubin, insert instructions, check the result; see docs/design/sass.md."""
