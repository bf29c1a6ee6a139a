"""Tests that need no GPU, of files that `make gpu` runs as well."""

from __future__ import annotations

from pathlib import Path

import pytest

ON_GPU = any(Path("/dev").glob("nvidia[0-9]*"))
of_the_host = pytest.mark.skipif(ON_GPU, reason="needs no GPU: make test runs it")
