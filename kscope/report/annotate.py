"""`kscope annotate -o page.html`: one page with the source, the samples of each line, and their reasons."""

from __future__ import annotations

from html import escape

from ..analysis.samples.annotated import UNREAD, Annotated, File, Line
from ..analysis.samples.reasons import ISSUED, meaning, remedy
from ..util.json_values import clean
from ..util.terminal import part_text, time_text
from . import reasons

_MOST_CODE = 20
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #888; }
body { font: 13px/1.45 system-ui, sans-serif; margin: 1.5em; overflow-wrap: anywhere; }
h1 { font-size: 1.2em; } h2 { font-size: 1em; margin: 2em 0 .5em; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: 0 .6em; text-align: right; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid var(--line); position: sticky; top: 0; background: Canvas; }
td.source, th.source { text-align: left; width: 60%; }
td.source pre { margin: 0; font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; }
td.source > pre { margin-left: 13px; } /* the marker of a line with instructions */
td.number, .dim { color: var(--dim); }
.bar { display: flex; height: .9em; width: 14em; margin-top: .25em; }
.bar span { display: block; height: 100%; }
.region { font-size: .85em; color: var(--dim); }
details summary { cursor: pointer; font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; }
details pre { margin: .2em 0 .6em 1.5em; font: 11px/1.4 ui-monospace, monospace; color: var(--dim); }
.legend summary { font: inherit; }
.legend span { margin-right: 1em; white-space: nowrap; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .35em; vertical-align: -.1em; }
.legend dl { display: grid; grid-template-columns: auto 1fr; gap: .2em .8em; max-width: 80em; }
.legend dt { font-weight: 600; } .legend dd { margin: 0; }
"""


def page(found: Annotated, title: str) -> str:
    """The page as HTML without scripts and without other files.

    Args:
        found: the lines.
        title: of the page.
    """
    colors = reasons.colors(line.reasons for file in found.files for line in file.lines)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{_text(title)}</title><style>{_STYLE}</style>",
        f"<h1>{_text(title)}</h1><p>{found.total:,} samples in {_text(', '.join(found.kernels))}</p>",
        _legend(colors),
        *(_file(one, colors) for one in found.files),
    ]
    if found.elsewhere:
        rows = ", ".join(f"{_text(name)}: {count:,}" for name, count in found.elsewhere.items())
        parts.append(f"<p class=dim>Samples without a source line: {rows}</p>")
    return "\n".join(parts) + "\n"


def _legend(colors: dict[str, str]) -> str:
    names = "".join(f"<span><i style='background:{color}'></i>{_text(name)}</span>" for name, color in colors.items())
    rows = "".join(
        f"<dt>{_text(name)}<dd>{_text(meaning(name))}{f'; {_text(remedy(name))}' if remedy(name) else ''}"
        for name in colors
    )
    return f"<details class=legend><summary>{names}</summary><dl>{rows}</dl></details>"


def _file(file: File, colors: dict[str, str]) -> str:
    columns = ("samples", "share", "why", "issued", "executed", "registers", "instructions")
    head = f"<tr><th>line<th class=source>source{''.join(f'<th>{name}' for name in columns)}"
    unread = "" if file.known else f"<p class=dim>{UNREAD}</p>"
    rows = "\n".join(_line(line, colors) for line in file.lines)
    return f"<h2>{_text(file.path)}</h2>{unread}<table>{head}\n{rows}</table>"


def _line(line: Line, colors: dict[str, str]) -> str:
    times = [f"{one.name}: {time_text(one.mean_ns)} a time, {part_text(one.share)} of its warps" for one in line.begins]
    notes = "".join(f"<div class=region>{_text(one)}</div>" for one in times)
    source = f"<pre>{_text(line.text) or '&nbsp;'}</pre>"
    if line.code:
        code = "\n".join(f"{count:>10,}  {_text(text)}" for text, count in line.code[:_MOST_CODE])
        more = f"\n  + {len(line.code) - _MOST_CODE} more" if len(line.code) > _MOST_CODE else ""
        source = f"<details><summary>{_text(line.text) or '&nbsp;'}</summary><pre>{code}{more}</pre></details>"
    cells = [""] * 5
    if line.samples:
        cells = [f"{line.samples:,}", part_text(line.share), _bar(line, colors), part_text(line.issued)]
        cells.append(part_text(line.executed))
    counts = (f"{count:,}" if count else "" for count in (line.registers, line.instructions))
    return f"<tr><td class=number>{line.number}<td class=source>{source}{notes}" + "".join(
        f"<td>{cell}" for cell in (*cells, *counts)
    )


def _bar(line: Line, colors: dict[str, str]) -> str:
    counts = {ISSUED: line.samples - sum(line.reasons.values()), **line.reasons}
    parts = [
        f"<span style='width:{100 * count / line.samples:.2f}%;background:{colors[name]}'"
        f" title='{_text(name)} {count / line.samples:.1%}'></span>"
        for name, count in counts.items()
        if count > 0
    ]
    return f"<div class=bar>{''.join(parts)}</div>"


def _text(text: str) -> str:
    return escape(clean(text), quote=True)
