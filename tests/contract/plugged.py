"""A third party's distribution (tests/plugin), visible as if it were installed."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

PLUGIN = Path(__file__).resolve().parents[1] / "plugin"


def plug() -> None:
    """Put the plugin's packages and entry points on the path, once, unless it is installed."""
    if str(PLUGIN) in sys.path:
        return
    project = (PLUGIN / "pyproject.toml").read_text()
    name, version = (re.search(rf'^{field} = "(.*)"', project, re.M) for field in ("name", "version"))
    points = re.search(r'^\[project\.entry-points\."(.*)"\]\n((?:\w+ = ".*"\n)+)', project, re.M)
    assert name and version and points
    info = Path(tempfile.mkdtemp(prefix="kscope-plugin-"), f"{name[1].replace('-', '_')}-{version[1]}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name[1]}\nVersion: {version[1]}\n")
    (info / "entry_points.txt").write_text(f"[{points[1]}]\n{points[2]}".replace('"', ""))
    sys.path += [str(PLUGIN), str(info.parent)]
