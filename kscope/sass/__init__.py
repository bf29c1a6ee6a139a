"""Machine code: read a cubin, insert instructions behind the assembler, check the result; see docs/design/sass.md."""
