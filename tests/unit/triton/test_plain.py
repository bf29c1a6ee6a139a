"""Plain kernels: an annotated kernel compiles to the same bytes as one without kscope."""

from __future__ import annotations

import re

import pytest

from kscope.instrument.recording import Recording

MATMUL = """
@triton.jit
def half(x):
    with region("half"):
        y = x * 0.5
    return y

@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BK: tl.constexpr):
    rows, inner = tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM, BM), tl.float32)
    with kscope.region("loop"):
        for k in range(0, K, BK):
            with kscope.region("load", value=k):
                x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
                y = tl.load(b + (k + inner)[:, None] * BM + rows[None, :])
            with kscope.region("dot") as dot:
                total = tl.dot(x, y, total)
                dot.pin(total)
            kscope.counter("k", k)
    kscope.instant("done", 1)
    tl.store(c + rows[:, None] * BM + rows[None, :], half(total))
"""


def without_kscope(source: str) -> str:
    """The same kernel, never annotated: bodies of `with` move out, other marks go."""
    out, inside = [], []
    for line in source.splitlines():
        indent = len(line) - len(line.lstrip())
        while inside and line.strip() and indent <= inside[-1]:
            inside.pop()
        if re.match(r"\s*with ", line):
            inside.append(indent)
        elif not re.match(r"\s*(kscope\.|\w+\.pin)", line):
            out.append(line[4 * len(inside) :] if line.strip() else line)
    return "\n".join(out)


def test_the_comparison_strips_every_kscope_call():
    assert "kscope" not in without_kscope(MATMUL)
    assert "region" not in without_kscope(MATMUL)
    assert "total = tl.dot(x, y, total)" in without_kscope(MATMUL)


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("before", ["never enabled", "enabled and disabled"])
def test_a_plain_kernel_is_byte_identical(plain_compiler, module, frontend, monkeypatch, arch, before):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", "BM": 64, "BK": 32}
    never = plain_compiler(module(without_kscope(MATMUL)).matmul, arch, **types)
    if before == "enabled and disabled":
        frontend.enable(Recording())
        frontend.disable()
    annotated = plain_compiler(module(MATMUL).matmul, arch, **types)
    assert annotated.asm["ptx"] == never.asm["ptx"]
    assert annotated.asm["cubin"] == never.asm["cubin"]


def test_with_line_information_only_the_lines_differ(plain_compiler, module):
    def code(text: str) -> list[str]:
        body = text.partition(".section")[0]
        return [line for line in body.splitlines() if not re.match(r"\s*(\.loc|\.file|\$L__tmp|//)", line)]

    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", "BM": 64, "BK": 32}
    never = plain_compiler(module(without_kscope(MATMUL)).matmul, **types)
    annotated = plain_compiler(module(MATMUL).matmul, **types)
    assert [re.sub(r"//.*", "", line) for line in code(annotated.asm["ptx"])] == [
        re.sub(r"//.*", "", line) for line in code(never.asm["ptx"])
    ]


def test_prepared_kernels_differ_from_plain_ones(compiler, module, frontend):
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32", "BM": 64, "BK": 32}
    prepared = compiler(module(MATMUL).matmul, **types)
    assert "kscope_ctl" in prepared.asm["ptx"]
    frontend.disable()
    assert "kscope_ctl" not in compiler(module(MATMUL).matmul, **types).asm["ptx"]
