"""A small PTX interpreter: runs the text that kscope emits, for many threads, with no GPU.

    syntax.py    PTX as values; parser.py reads text into them, with every scope resolved
    ops.py       one instruction -> Python statements
    compiler.py  a kernel -> one Python generator function that pauses before every memory access
    memory.py    byte-addressed allocations; any access outside of one is a FaultError
    machine.py   threads, special registers, clocks, and the scheduler that interleaves them
    host.py      the host's half of the device protocol: control block, pool, reading slabs back
    drain.py     a host that frees and reuses memory while kernels run
    oracle.py    what the marks of a text mean, run directly: the records that a thread should leave
    judge.py     the properties that hold for every launch
    writing.py   kernels with marks as trees, and their text; kernels.py draws them with hypothesis
    cases.py     whole launches, drawn, run and judged
    assemble.py  ptxas, with its answers kept
    profile.py   how many examples

Each thread has its own program counter and runs on its own; only memory accesses are visible to other
threads, so interleaving at memory accesses is as good as interleaving at every instruction. An
instruction that is not in ops.py is an error that names the line.
"""
