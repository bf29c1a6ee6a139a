"""Libraries that keep compiled functions by shape: one set of entries per recording, in memory and on disk."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kscope.instrument.recording import Recording

from .test_caches import enter

PLAIN, CYCLES, TIMER = None, Recording(), Recording(clock="globaltimer")

QUACK = """
import functools
import pathlib

pool = None

def get_cache_path():
    return pathlib.Path(__file__).parent / "files"

def jit_cache(function):
    cache = {}

    @functools.wraps(function)
    def cached(*key):
        if key not in cache:
            folder = get_cache_path()
            folder.mkdir(exist_ok=True)
            file = folder / f"{key}.o"
            if not file.exists() and not (pool and pool.submit(str(key), function, key, {}, file)):
                file.write_text(function(*key))
            cache[key] = file.read_text()
        return cache[key]

    return cached
"""
WORKERS = """
class CompilePool:
    def submit(self, sha, function, args, kwargs, path):
        path.write_text("plain object")
        return True
"""
FLASH = """
import hashlib
import pathlib

class JITCache:
    def __init__(self):
        self.cache = {}

    def __contains__(self, key):
        return key in self.cache

    def __getitem__(self, key):
        return self.cache[key]

    def __setitem__(self, key, function):
        self.cache[key] = function

class JITPersistentCache(JITCache):
    folder = pathlib.Path(__file__).parent

    def __contains__(self, key):
        file = self.folder / self._key_to_hash(key)
        if not JITCache.__contains__(self, key) and file.exists():
            JITCache.__setitem__(self, key, file.read_text())
        return JITCache.__contains__(self, key)

    def __setitem__(self, key, function):
        JITCache.__setitem__(self, key, function)
        (self.folder / self._key_to_hash(key)).write_text(function)

    def _key_to_hash(self, key):
        return hashlib.sha256(repr(key).encode()).hexdigest()
"""
QUACK_USER = """
from quack.{} import jit_cache

compiled = []

@jit_cache
def softmax(shape):
    compiled.append(shape)
    return f"object {{len(compiled)}}"
"""
USERS = {
    "quack.softmax": QUACK_USER.format("cache.jit"),
    "quack.older": QUACK_USER.format("cache_utils"),
    "flash_attn.cute.interface": """
from flash_attn.cute.cache_utils import JITPersistentCache

compiled = []
memory = JITPersistentCache()

def softmax(shape):
    if shape not in memory:
        compiled.append(shape)
        memory[shape] = f"object {len(compiled)}"
    return memory[shape]
""",
    "flash_attn.cute.older": """
compiled = []

def softmax(shape):
    if shape not in softmax.compile_cache:
        compiled.append(shape)
        softmax.compile_cache[shape] = f"object {len(compiled)}"
    return softmax.compile_cache[shape]

softmax.compile_cache = {}
""",
}


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("quack", "flash_attn")]:
        del sys.modules[name]


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages with caches in the manner of quack and FlashAttention."""
    texts = {"quack.cache.jit": QUACK, "quack.cache_utils": QUACK, "quack.cache.async_compile": WORKERS, **USERS}
    texts["flash_attn.cute.cache_utils"] = FLASH
    for name, text in texts.items():
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in [path.parent, *path.parent.parents][: name.count(".")]:
            (package / "__init__.py").touch()
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield
    forget()


users = pytest.mark.parametrize("user", USERS)


@users
def test_each_recording_has_its_own_entries(frontend: Any, libraries: None, user: str) -> None:
    module = importlib.import_module(user)
    found = []
    for recording in (PLAIN, CYCLES, CYCLES, TIMER, PLAIN, CYCLES, TIMER):
        enter(frontend, recording)
        found.append(module.softmax((64, 128)))
    first, second, third = "object 1", "object 2", "object 3"
    assert found == [first, second, second, third, first, second, third]


@users
def test_libraries_imported_while_recording_have_separate_cache_entries(
    frontend: Any, libraries: None, user: str
) -> None:
    frontend.enable(CYCLES)
    module = importlib.import_module(user)
    marked = module.softmax((64, 128))
    frontend.disable()
    assert module.softmax((64, 128)) != marked
    frontend.enable(CYCLES)
    assert module.softmax((64, 128)) == marked


@pytest.mark.parametrize("user", [name for name in USERS if name != "flash_attn.cute.older"])
def test_files_of_an_earlier_process_are_found_only_for_the_same_recording(
    frontend: Any, libraries: None, user: str
) -> None:
    for recording, expected in [(PLAIN, 1), (CYCLES, 1), (CYCLES, 0), (PLAIN, 0), (TIMER, 1), (TIMER, 0)]:
        forget()  # as in another process
        enter(frontend, recording)
        module = importlib.import_module(user)
        assert module.softmax((64, 128))
        assert len(module.compiled) == expected


def test_a_library_compiles_in_this_process_while_recording(frontend: Any, libraries: None) -> None:
    """Its workers would write plain objects among those with marks, and later sessions would find them."""
    module, cache = importlib.import_module("quack.softmax"), importlib.import_module("quack.cache.jit")
    cache.pool = importlib.import_module("quack.cache.async_compile").CompilePool()
    found = []
    for recording in (PLAIN, CYCLES, PLAIN):
        enter(frontend, recording)
        found += [module.softmax((64, size)) for size in (len(found), 128)]
    assert found == ["plain object", "plain object", "object 1", "object 2", "plain object", "plain object"]
