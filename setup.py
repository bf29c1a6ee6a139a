"""The compiled part of kscope, and the description that a package index shows; everything else is in pyproject.toml."""

import os
import re
import zlib
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("kscope/native")
SOURCES, HEADERS = (sorted(map(str, FOLDER.glob(pattern))) for pattern in ("*.c", "*.h"))
DIGEST = f"{zlib.crc32(b''.join(Path(path).read_bytes() for path in sorted(SOURCES + HEADERS))):08x}"

# One library for all versions of Python: ctypes loads it, and it is a module of the stable ABI. Without a C compiler,
# kscope runs the same algorithms in numpy and Python.
native = Extension(
    "kscope.native._native",
    sources=SOURCES,
    depends=HEADERS,
    define_macros=[("KS_DIGEST", f'"{DIGEST}"')],
    extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"],
    extra_link_args=["-pthread"],
    py_limited_api=True,
    optional=True,
)


def description(readme: str, repository: str) -> str:
    """The README for a package index, where a path of the repository leads nowhere.

    Args:
        readme: the README's text.
        repository: an address that ends with the commit, `https://HOST/OWNER/NAME/blob/COMMIT`: links and pictures lead
            there. Empty: links become plain text, and pictures are left out.
    """
    text = re.sub(r"<!--.*?-->\n?", "", readme, flags=re.S)
    inside = r"\((?!https?:|#)([^)]+)\)"
    if not repository:
        return re.sub(rf"\[([^\]]*)\]{inside}", r"\1", re.sub(rf"!\[[^\]]*\]{inside}\n*", "", text))
    pictures = repository.replace("/blob/", "/raw/")
    text = re.sub(rf"(!\[[^\]]*\]){inside}", rf"\1({pictures}/\2)", text)
    return re.sub(rf"(\[[^\]]*\]){inside}", rf"\1({repository}/\2)", text)


REPOSITORY = os.environ.get("KSCOPE_REPOSITORY", "")
"""Set by a release: where the description's links lead, and the project's addresses."""

setup(
    long_description=description(Path("README.md").read_text(encoding="utf-8"), REPOSITORY),
    long_description_content_type="text/markdown",
    project_urls={"Source": REPOSITORY, "Changelog": f"{REPOSITORY}/CHANGELOG.md"} if REPOSITORY else {},
    ext_modules=[native],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
