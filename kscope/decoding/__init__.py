"""Decoding: the words of a capture become columns.

What lives here: slabs found in raw memory (slabs.py), their records as columns of ticks (columns.py, and unwrap.py for
clocks that turned over), names (ids.py), lanes (warps.py), launches (launches.py), nesting (nesting.py), nanoseconds on
one axis (axis.py). What does not: what the words mean (kscope/layout.py), files (kscope/capturefile.py), the steps in
their order and the Trace that comes out (kscope/assemble.py, kscope/trace.py).
"""
