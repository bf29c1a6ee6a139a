"""Shared by the examples: is there a GPU for Triton or torch, and the end of a recording."""

from __future__ import annotations

import kscope


def show(trace: kscope.Trace, expected: int, stem: str) -> None:
    """Check the number of records, print the summary, and name the command that makes a timeline.

    Args:
        trace: what was recorded.
        expected: the number of records.
        stem: the capture is ``stem.kscope``.
    """
    assert len(trace) == expected, f"{len(trace)} records, expected {expected}"
    print(trace.summary())
    print(f"{stem}.kscope: kscope export {stem}.kscope -o {stem}.pftrace, then open it in ui.perfetto.dev")


def triton_on_gpu() -> bool:
    """True if Triton has a GPU. Ends the program in Triton's interpreter."""
    import triton
    from triton.backends import backends

    if triton.knobs.runtime.interpret:
        raise SystemExit("TRITON_INTERPRET=1 runs kernels as Python, which only triton_softmax.py does here: unset it")
    return bool(backends["nvidia"].driver.is_active())


def torch_on_gpu() -> bool:
    """True if torch is installed and has a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
