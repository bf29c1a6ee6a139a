"""A C++ function with marks around random lines computes the same, keeps its lines, and its marks pair."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from kscope.errors import UsageError
from kscope.instrument.selection.auto import Lines, Selection
from kscope_cuda.select import marked

from .cpp_programs import program

COUNT = 900 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 20
TRIES = 8
"""Ranges that are tried for each program."""
KINDS = ((), (), ("loop",), ("loop", "iteration"))
COMPILER = shutil.which("g++") or shutil.which("clang++")
_MARK = re.compile(r'asm volatile\("//kscope (enter|exit) (\S+) - - (?:lines|auto)" ::: "memory"\);')
HARNESS = r"""
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>
#define __device__
#define __forceinline__
static unsigned state; static int asked; static std::jmp_buf endless; static std::vector<int> out;
static std::vector<const char*> open_; static bool broken;
static int nxt() {
  if (++asked > 300) std::longjmp(endless, 1);
  state = state * 1664525u + 1013904223u;
  return state >> 16 & 7;
}
static void emit(int x) { out.push_back(x); }
static void enter(const char* name) { open_.push_back(name); }
static void leave(const char* name) {
  if (open_.empty() || std::strcmp(open_.back(), name)) broken = true; else open_.pop_back();
}
static std::vector<int> run(int (*f)(int), unsigned seed) {
  state = seed; asked = 0; out.clear(); open_.clear(); broken = false;
  if (setjmp(endless)) { out.push_back(-7); return out; }
  out.push_back(f(3));
  if (!open_.empty()) broken = true;
  return out;
}
static int compare(int id, int (*f)(int), int (*g)(int)) {
  for (unsigned seed = 1; seed < 9; ++seed) {
    std::vector<int> a = run(f, seed), b = run(g, seed);
    if (a != b || broken) { std::printf("%d %s\n", id, broken ? "unpaired" : "different"); return 1; }
  }
  return 0;
}
"""


def variants(seed: int) -> tuple[str, list[tuple[str, str]], list[str]]:
    """A program, its text with marks around random lines and their ranges, and the number of refused ranges."""
    text, random = program(seed), Random(seed)
    count, made, refused = text.count("\n"), [], []
    for _ in range(TRIES):
        first = random.randint(4, count)
        spans = [(first, min(count, first + random.choice([0, 0, 1, 2, 3, 5, 9, 40])))]
        if random.random() < 0.4:
            inner = random.randint(*spans[0])
            spans.append((inner, random.randint(inner, spans[0][1])))
        try:
            requested = tuple(Lines(f"r{at}", "f", *span) for at, span in enumerate(spans))
            found = marked(text, Selection(random.choice(KINDS), requested))
        except UsageError as error:
            refused.append(str(error))
            continue
        if found is not None:
            made.append((str(spans), found.text))
    return text, made, refused


def test_marked_random_programs_compute_the_same(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    parts, calls, refused, accepted, pragmas = [HARNESS], [], [], 0, 0
    known: dict[int, str] = {}
    for seed in range(COUNT):
        text, made, why = variants(seed)
        refused += why
        parts.append(f"namespace p{seed} {{\n#line 1\n{text}}}")
        for at, (span, changed) in enumerate(made):
            shown = _MARK.sub(lambda found: f'{"enter" if found[1] == "enter" else "leave"}("{found[2]}");', changed)
            assert shown.count("enter(") >= 1
            parts.append(f"#undef EACH\n#undef STEP\n#undef IF_SMALL\nnamespace p{seed}_{at} {{\n#line 1\n{shown}}}")
            known[len(calls)] = f"seed {seed}, lines {span}\n{text}\n----\n{shown}"
            calls.append(f"failed += compare({len(calls)}, p{seed}::f, p{seed}_{at}::f);")
            accepted += 1
            pragmas += "\n#line" in shown
        parts.append("#undef EACH\n#undef STEP\n#undef IF_SMALL")
    parts.append("int main() { int failed = 0;\n" + "\n".join(calls) + "\nreturn failed > 0; }")
    source, program_ = tmp_path / "all.cpp", tmp_path / "all"
    source.write_text("\n".join(parts))
    subprocess.run([COMPILER, "-std=c++17", "-w", "-fpermissive", "-O0", "-o", program_, source], check=True)
    done = subprocess.run([program_], capture_output=True, text=True, check=False)
    faults = [known[int(line.split()[0])] + line for line in done.stdout.splitlines()]
    assert not faults, faults[0]
    assert done.returncode == 0
    assert accepted > COUNT * TRIES * 0.3
    assert pragmas > 0
    assert any("cut through" in text for text in refused)
