"""A small PTX interpreter: runs the text that kscope emits, for many threads, with no GPU.

    parser.py    text -> Module (symbols, kernels, instructions with their scopes resolved)
    ops.py       one instruction -> Python statements
    compiler.py  a kernel -> one Python generator function that pauses before every memory access
    memory.py    byte-addressed allocations; any access outside of one is a Fault
    machine.py   threads, special registers, clocks, and the scheduler that interleaves them
    host.py      the host's half of the device protocol: control block, pool, reading slabs back
    oracle.py    what the marks of a text mean, run directly: the records that a thread should leave
    kernels.py   hypothesis: random kernels with marks

Each thread has its own program counter and runs on its own; only memory accesses are visible to other
threads, so interleaving at memory accesses is as good as interleaving at every instruction. An
instruction that is not in ops.py is an error that names the line.
"""
