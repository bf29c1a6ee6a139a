"""Lowering: marks in a module's PTX become records.

What lives here: the text as statements and blocks (cfg.py), regions checked on every path (pairing.py), what each
statement of a marked kernel needs (emitting.py), arithmetic that a mark would hold back (hoist.py), the pass over all
of it (plan.py), and the same within the registers that a kernel has (fit.py). What does not: the instructions of a
record (kscope/ptx), and how a mark got into the text (frontends).
"""
