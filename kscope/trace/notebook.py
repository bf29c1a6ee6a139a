"""A trace's report page in a notebook, or in a browser's window, without network or server."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tracedata.data import TraceData

if TYPE_CHECKING:
    from ..analysis.critical_path import GivenEdge

MOST = 500_000
"""The most records of a page in a notebook: the notebook's file contains the page."""
_HEIGHT = 640


@dataclass(frozen=True, repr=False)
class Page:
    """A page that a notebook shows in a separate frame.

    Attributes:
        html: the page.
        height: of the frame, in pixels.
    """

    html: str
    height: int = _HEIGHT

    def __repr__(self) -> str:
        return f"<kscope.Page: {len(self.html):,} characters; a notebook shows it, save(path) writes it>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{self.height}px;border:0" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. Raises OSError."""
        Path(path).write_text(self.html, encoding="utf-8")


def page(trace: TraceData, limit: int | None = MOST, height: int = _HEIGHT, edges: Iterable[GivenEdge] = ()) -> Page:
    """The page of a trace.

    Args:
        trace: the trace.
        limit: records to draw, the first by time; None for all. The page states how many are left out.
        height: of the frame in a notebook, in pixels.
        edges: of the critical path.
    """
    from .. import report  # loaded on first use
    from ..export import first

    file = io.BytesIO()
    report.write(first(trace, limit), file, edges=edges)
    return Page(file.getvalue().decode(), height)


def show(trace: TraceData, limit: int | None = None, edges: Iterable[GivenEdge] = ()) -> None:
    """Show a trace: in a notebook below the cell, else in the browser, from a temporary file of this user's.

    Args:
        trace: the trace.
        limit: as in page(); None for MOST in a notebook, else for all records.
        edges: of the critical path.
    """
    display = _notebook()
    if display is not None:
        display(page(trace, MOST if limit is None else limit, edges=edges))
        return
    shown = page(trace, limit, edges=edges)
    descriptor, name = tempfile.mkstemp(prefix="kscope-", suffix=".html")  # mode 0600
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(shown.html)
    import webbrowser  # only needed here, and slow to import

    if not webbrowser.open(Path(name).as_uri()):
        print(f"no browser here; the page is {name}", file=sys.stderr)


def _notebook() -> Any:
    """IPython's display() in a notebook's kernel, else None."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return None if running is None or not hasattr(running, "kernel") else sys.modules["IPython.display"].display
