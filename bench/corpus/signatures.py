"""Guesses at a Triton kernel's arguments: which are pointers, from how its body uses them; others from their names."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from triton import language as tl
from triton.runtime import JITFunction

_ACCESSES = ("load", "store", "make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor")
_THROUGH = ("multiple_of", "max_contiguous", "cast", "advance", "to", "assume")
_INTEGERS = re.compile(
    r"idx|indice|index|offset|seqlens|lens?(_|$)|_ids?(_|$)|label|target|table|count|lock|"
    r"chunk_|cu_|num_"
)
_MASKS = re.compile(r"mask|cond|bool|flag")
_FLOATS = re.compile(
    r"eps|scal|alpha|beta|lr$|gamma|limit|theta|temperature|smooth|factor|weight|^p$|prob|"
    r"softcap|slope|decay|value|lambda|delta|ratio|thres"
)
_TRUTHS = re.compile(
    r"^(HAS|USE|IS|STORE|OUTPUT|SAVE|REVERSE|DO|WITH|ENABLE|APPLY|RETURN|IF|ELEMENTWISE|CAUSAL|TRANS|EVEN|INPLACE)|"
    r"_(FLAG|ONLY)$|BIAS$|CAUSAL$"
)
_SIZES = re.compile(
    r"BLOCK|SIZE|TILE|^B[A-Z]{0,2}\d?$|^[DKVNMCSTL]$|DIM|^[a-z]?[hH]ead_?dim|chunk|^HD$|"
    r"_D$|_N$|_K$|_M$|padded"
)
_FEW = re.compile(
    r"NUM|MAX_|GROUP|STAGE|TOPK|TOP_K|^H[QKV]?$|^G$|^B$|^Z$|COUNT|STEPS|REP|WARPS|CTAS|"
    r"SPLIT|RANK|KERNEL|STRIDE|PAD|DILAT|VEC|UNROLL|ITER"
)
_TYPES = re.compile(r"dtype|DTYPE|_type$|_TYPE$|^ty$")


@dataclass(frozen=True)
class Guess:
    """Assumed arguments: element type of pointers, block sizes, and switches."""

    pointer: str
    block: int
    switch: bool
    warps: int = 4


GUESSES = (
    Guess("fp16", 64, True),
    Guess("fp16", 64, False),
    Guess("fp32", 128, False),
    Guess("fp32", 32, True),
    Guess("bf16", 128, True, 8),
    Guess("fp16", 16, False),
    Guess("fp32", 1024, False),
    Guess("i32", 256, False),
)


@dataclass(frozen=True)
class Signature:
    """For ASTSource."""

    types: dict[str, str]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], list[list[Any]]]


def signature(kernel: Any, guess: Guess) -> Signature:
    """A kernel's arguments by one guess."""
    bases, types, constants = pointers(kernel), dict[str, str](), dict[tuple[int, ...], Any]()
    for number, one in enumerate(kernel.params):
        if one.is_constexpr:
            types[one.name] = "constexpr"
            constants[(number,)] = _constant(one, guess)
        elif one.name in bases:
            types[one.name] = _pointer(one.name, guess)
        else:
            types[one.name] = one.annotation_type or ("fp32" if _FLOATS.search(one.name.lower()) else "i32")
    aligned = {
        (number,): [["tt.divisibility", 16]]
        for number, (name, kind) in enumerate(types.items())
        if kind[0] == "*" or (kind == "i32" and not re.search("stride|idx|start|end|pid", name.lower()))
    }
    return Signature(types, constants, aligned)


def _pointer(name: str, guess: Guess) -> str:
    low = name.lower()
    if _INTEGERS.search(low):
        return "*i64" if re.search("label|target|_ids|indices", low) else "*i32"
    return "*i1" if _MASKS.search(low) else f"*{guess.pointer}"


def _constant(one: Any, guess: Guess) -> Any:
    name = one.name
    if one.has_default and one.default is not None:
        return one.default
    if _TYPES.search(name):
        return tl.float32
    if _TRUTHS.search(name.upper()) and not _SIZES.fullmatch(name):
        return guess.switch
    if re.search("EPS|SCALE|ALPHA|SOFTCAP|MOMENTUM|BETA|RATIO", name.upper()):
        return 0.5
    if re.search(r"ACTIVATION|MODE|REDUCTION|TYPE", name.upper()):
        return "sum" if "REDUC" in name.upper() else "none"
    return 2 if _FEW.search(name.upper()) else guess.block


def pointers(kernel: Any) -> frozenset[str]:
    """The arguments that are pointers, or that a helper is given as one."""
    tree = ast.parse(textwrap.dedent(kernel.src))
    use = _Use(kernel)
    for _ in range(2):  # the second iteration reads what its first one wrote
        use.visit(tree)
    return frozenset(use.found & {one.name for one in kernel.params})


def kernels(names: dict[str, Any], module: str) -> Iterator[tuple[str, Any]]:
    """The jitted functions of a module that return nothing and reach memory."""
    for name, one in list(names.items()):
        if isinstance(one, JITFunction) and one.fn.__module__ == module and pointers_or_none(one):
            tree = ast.parse(textwrap.dedent(one.src))
            if not any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree)):
                yield name, one


def pointers_or_none(kernel: Any) -> frozenset[str]:
    """The same; none if its source is not understood."""
    try:
        return pointers(kernel)
    except Exception:  # whatever foreign code leads to
        return frozenset()


class _Use(ast.NodeVisitor):
    """Follows addresses back to the arguments that they begin with."""

    def __init__(self, kernel: Any) -> None:
        self.found = set[str]()
        self._kernel, self._names = kernel, kernel.fn.__globals__
        self._bases = {one.name: one.name for one in kernel.params}

    def base(self, node: ast.expr | None) -> str | None:
        """The variable that an address begins with."""
        match node:
            case ast.Name():
                return self._bases.get(node.id)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self.base(node.left) or self.base(node.right)
            case ast.IfExp():
                return self.base(node.body) or self.base(node.orelse)
            case ast.Call(func=ast.Attribute(attr="to") as of):
                return self.base(of.value)
            case ast.Call() if _called(node) in (*_ACCESSES[2:], *_THROUGH):
                return self.base(node.args[0] if node.args else _keyword(node, "base"))
            case _:
                return None

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                base = self.base(node.value)
                if base is not None:
                    self._bases[target.id] = base
                elif target.id not in self.found:
                    self._bases.pop(target.id, None)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "element_ty" and isinstance(node.value, ast.Attribute):
            self._add(node.value.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        if name in _ACCESSES or name.startswith("atomic_"):
            self._add(node.args[0] if node.args else _keyword(node, "pointer"))
        other = self._names.get(name)
        if isinstance(other, JITFunction) and isinstance(node.func, ast.Name) and other is not self._kernel:
            inner = pointers_or_none(other)
            given = dict(zip([one.name for one in other.params], node.args, strict=False))
            given |= {one.arg: one.value for one in node.keywords if one.arg}
            for one in inner & given.keys():
                self._add(given[one])
        self.generic_visit(node)

    def _add(self, node: ast.expr | None) -> None:
        if (base := self.base(node)) is not None:
            self.found.add(base)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in node.keywords if one.arg in (name, "base")), None)
