"""Resolves addresses of a dump: function, instruction, source line and open regions, from the modules in it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..capture.model import ModuleMeta
from ..capture.samples import Place, SampledFunction
from ..errors import FormatError
from ..machine_code import code_map, elf, tools
from ..marks.names import split
from .reading import Dump, Image


@dataclass(frozen=True)
class Spot:
    """A place in the code.

    Attributes:
        function: its name; empty if the address is in no module.
        offset: from the function's beginning, in bytes; the address itself outside of functions.
        text: the instruction; empty if it is unknown.
        chain: the source line and the calls that were inlined around it; empty if it is unknown. Lines of headers of
            the CUDA toolkit and of kscope are left out where the line that uses them is known.
        regions: open regions, outermost first.
    """

    function: str
    offset: int
    text: str = ""
    chain: tuple[Place, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Places:
    """The places of a dump's addresses, by device and address.

    Attributes:
        spots: of the addresses that were looked up.
        problems: reasons why source lines and regions are unknown.
    """

    spots: Mapping[tuple[int, int], Spot]
    problems: tuple[str, ...]


Describe = Callable[[bytes], tuple[ModuleMeta, ...]]
"""Finds the metadata in the bytes of a module."""
_Code = tuple[Image, elf.Symbol]
_HEADERS = re.compile(r"/include/(crt/|sm_\d+_\w+\.hpp$|cooperative_groups|cuda/|nv/)|\bkscope\.cuh$")


def places(dump: Dump, addresses: Iterable[tuple[int, int]], describe: Describe = tools.modules_in) -> Places:
    """Look up addresses, as device and address. describe: finds the regions of a module."""
    needed = sorted(set(addresses))
    known, problems = _functions(dump, needed)
    by_image = defaultdict[Image, set[str]](set)
    for image, symbol in known.values():
        by_image[image].add(symbol.name)
    code = dict[tuple[Image, str], SampledFunction]()
    for image, names in by_image.items():
        for one in _described(dump.image(image), names, describe):
            code[image, one.name] = one
            if one.why_unknown:
                problems.append(f"{one.name}: its source lines are not known: {one.why_unknown}")
    spots = {at: _spot(at[1], *known[at], code) if at in known else Spot("", at[1]) for at in needed}
    return Places(spots, tuple(dict.fromkeys(problems)))


def _functions(dump: Dump, needed: list[tuple[int, int]]) -> tuple[dict[tuple[int, int], _Code], list[str]]:
    """Map each address to its function and module."""
    found, problems = dict[tuple[int, int], _Code](), list[str]()
    for image in dump.images:
        try:
            functions = [one for one in elf.read(dump.image(image)).symbols() if one.function]
        except FormatError as error:
            problems.append(str(error))
            continue
        for one in functions:
            low, high = (bisect_left(needed, (image.device, at)) for at in (one.value, one.value + one.size))
            found |= dict.fromkeys(needed[low:high], (image, one))
    return found, problems


def _described(cubin: bytes, names: set[str], describe: Describe) -> list[SampledFunction]:
    sampled = [SampledFunction(name) for name in sorted(names)]
    return code_map.with_instructions(sampled, cubin, *code_map.marks_of(describe(cubin)))


def _spot(address: int, image: Image, symbol: elf.Symbol, code: Mapping[tuple[Image, str], SampledFunction]) -> Spot:
    one, offset = code[image, symbol.name], address - symbol.value
    number = bisect_left(one.at, address)
    if number == len(one.at) or one.at[number] != address:
        return Spot(symbol.name, offset)
    regions = tuple(split(name)[0] for name in one.stack(number))
    return Spot(symbol.name, offset, one.text[number], _own(one.chain(number)), regions)


def _own(chain: tuple[Place, ...]) -> tuple[Place, ...]:
    """The chain without headers that a line of the program uses, such as that of atomicAdd()."""
    first = next((number for number, (file, _) in enumerate(chain) if not _HEADERS.search(file)), 0)
    return chain[first:]
