"""The Python line of each launch: the k-th that the host launched is the k-th by %gridid."""

from __future__ import annotations

from collections.abc import Sequence

from ..capture.capture_data import CaptureData
from ..capture.model import Problem
from ..tracedata.calls import Call
from ..tracedata.data import Launch
from ..util.grouping import grouped
from ..util.json_values import clean
from ..util.text import some


def calls(capture: CaptureData, launches: Sequence[Launch]) -> tuple[tuple[Call, ...], list[Problem]]:
    """(a row per launch, problems); no rows if the session did not record lines.

    Lines are of launches, not of replays of a graph. A kernel whose launches are not as many as their lines has none.
    """
    if not capture.launched_at:
        return (), []
    texts = [_text(*line) for line in capture.lines]
    by_kernel = grouped((launch.kernel_id, at) for at, launch in enumerate(launches) if launch.replay == 0)
    found, without = dict[int, str](), dict[str, int]()
    for kernel, mine in by_kernel.items():
        lines = capture.launched_at.get(kernel, ())
        one_device = len({launches[at].device for at in mine}) == 1
        if len(lines) != len(mine) or (len(set(lines)) > 1 and not one_device):
            without[launches[mine[0]].kernel] = len(mine)
            continue
        mine.sort(key=lambda at: launches[at].grid_id)
        found |= {at: texts[line] for at, line in zip(mine, lines, strict=True) if texts[line]}
    problems = []
    if without:
        text = (
            f"launches of {some(list(without), 5)} have no line: graphs, several threads or several GPUs launched them"
        )
        problems.append(Problem("lines", text, sum(without.values())))
    return tuple(Call(at, stack=(found[at],) if at in found else ()) for at in range(len(launches))), problems


def _text(file: str, line: int, function: str) -> str:
    """A line as torch.profiler writes frames: `train.py(12): step`."""
    return clean(f"{file}({line}): {function}") if file else ""
