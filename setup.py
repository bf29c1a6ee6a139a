"""The compiled part of kscope; everything else stands in pyproject.toml."""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("kscope/native")
SOURCES, HEADERS = (sorted(map(str, FOLDER.glob(pattern))) for pattern in ("*.c", "*.h"))
DIGEST = hashlib.sha256(b"".join(Path(path).read_bytes() for path in sorted(SOURCES + HEADERS))).hexdigest()[:16]

# Plain C, loaded with ctypes: one library for all versions of Python. Without a C compiler numpy does the same.
native = Extension(
    "kscope.native._native",
    sources=SOURCES,
    depends=HEADERS,
    define_macros=[("KS_DIGEST", f'"{DIGEST}"')],
    extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp310"}})
