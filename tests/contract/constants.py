"""Scopes with a constant value of each Python and numpy type; the bools are refused."""

from __future__ import annotations

import numpy as np

import kscope

INT = kscope.scope("int", value=-7)
FLOAT = kscope.scope("float", value=1.5)
INT8 = kscope.scope("int8", value=np.int8(-8))
INT16 = kscope.scope("int16", value=np.int16(-16))
INT32 = kscope.scope("int32", value=np.int32(-32))
INT64 = kscope.scope("int64", value=np.int64(-64))
UINT8 = kscope.scope("uint8", value=np.uint8(8))
UINT16 = kscope.scope("uint16", value=np.uint16(16))
UINT32 = kscope.scope("uint32", value=np.uint32(4_000_000_000))
UINT64 = kscope.scope("uint64", value=np.uint64(64))
FLOAT16 = kscope.scope("float16", value=np.float16(0.5))
FLOAT32 = kscope.scope("float32", value=np.float32(0.25))
FLOAT64 = kscope.scope("float64", value=np.float64(0.125))
BOOL = kscope.scope("bool", value=True)
NUMPY_BOOL = kscope.scope("numpy bool", value=np.bool_(False))
