"""Runs the PTX of whole kernels with real numbers, one block at a time, without a GPU, to check their results.

    text.py      reduces compiler output to what ptxvm's parser accepts
    memory.py    one array of bytes: shared memory and symbols below, global memory above
    machine.py   a block's threads: program counters and registers
    block.py     the scheduler
    ops.py       one instruction for many lanes at once, in numpy
    exchange.py  lanes and the copy engine together: shuffles, atomics, mbarriers, bulk copies

ptxvm checks kscope's protocol thread by thread, in every order, with integers only. Here nothing is recorded (the
control word is 0, as before a session), and the results of a kernel are checked: marks must not change them. An
unsupported instruction is an error that names it.
"""
