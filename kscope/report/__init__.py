"""report.html: a trace as one page that any browser opens, without a server and without the network.

    drawn_warps.py  the place of each warp             pack.py      columns as text
    scene.py     names, codes, the records of an SM    page.py      the page around the data
    slices.py    records as columns                    writer.py    writes the page from them
    heat.py      the overview, level by level          page/        the page itself: HTML, CSS, JavaScript
    figures.py   histograms, imbalance, longest spans

Each SM's records are packed separately, and the page unpacks those that it shows, so ten million open as fast as the
browser reads the file.
"""

from .writer import write as write

__all__ = ["write"]
