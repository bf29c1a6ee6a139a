"""The compiled part of kscope; everything else stands in pyproject.toml."""

from setuptools import Extension, setup

# Plain C, loaded with ctypes: one library for all versions of Python. Without a C compiler numpy does the same.
native = Extension(
    "kscope.native._native",
    sources=[f"kscope/native/{name}.c" for name in ("anchors", "groups", "rows", "slabs")],
    depends=["kscope/native/native.h"],
    extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp310"}})
