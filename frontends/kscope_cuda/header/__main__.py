"""`python -m kscope_cuda.header`: write the header."""

from . import PATH, text

PATH.write_text(text(), encoding="utf-8")
print(f"wrote {PATH}")
