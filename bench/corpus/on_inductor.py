"""PTX of the Triton kernels that torch.compile writes for small functions, compiled as on_triton does."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch._inductor import codecache
from torch._inductor.runtime import triton_heuristics

from . import on_triton
