"""A small capture, cut at every byte and flipped at every bit: all damage is detected."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import synth
from torture.targets import saved, use

from kscope.capture.capture import Capture, load_capture
from kscope.errors import FormatError
from kscope.trace import decode

TINY = synth.capture(synth.slab([synth.Rec("load", 2000, 2100)], log2=2), names=("load",))


STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 3
"""Every bit of a header, or every third bit with a different offset in each word."""


def test_a_capture_that_ends_at_any_byte_is_refused(tmp_path: Path) -> None:
    data, path = saved(TINY), tmp_path / "x.kscope"
    assert len(load_capture(_put(path, data)).devices) == 1
    for length in range(len(data)):
        with pytest.raises(FormatError):
            load_capture(_put(path, data[:length]))


def test_a_capture_with_any_bit_flipped_is_refused(tmp_path: Path) -> None:
    data, path = saved(TINY), tmp_path / "x.kscope"
    with _put(path, data).open("r+b", buffering=0) as file:
        for at, byte in enumerate(data):
            for changed in (byte ^ 1 << bit for bit in range(8)):
                os.pwrite(file.fileno(), bytes([changed]), at)
                with pytest.raises(FormatError):
                    load_capture(path)
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert len(load_capture(path).devices) == 1


def test_words_that_end_at_any_line_are_decoded(tmp_path: Path) -> None:
    lines = np.concatenate([synth.slab(synth.EVERY_KIND), synth.slab(synth.EVERY_KIND, sm=3, block=(1, 0, 0))])
    for length in range(len(lines) + 1):
        use(decode(_of(lines[:length])), tmp_path)


def test_a_slab_with_any_bit_of_its_header_flipped_is_decoded_and_a_torn_one_is_reported() -> None:
    good = synth.slab([synth.Rec("load", 2000, 2100)], log2=2)
    for word in range(32):
        for bit in range(word % STEP, 32, STEP):
            lines = good.copy()
            lines.reshape(-1)[word] ^= np.uint32(1 << bit)
            trace = decode(_of(lines))
            kinds = {problem.kind for problem in trace.problems}
            checked = word < 21  # words covered by the check word, including itself
            if checked and word != 0:
                assert "torn" in kinds, (word, bit)
            assert len(trace) == 0 or not checked, (word, bit)


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _of(lines: np.ndarray) -> Capture:
    return Capture(synth.EPOCH, (synth.device(lines),), (synth.module(synth.ITS_NAMES),))
