"""Runs the PTX of whole kernels with real numbers, a block at a time, with no GPU: do they compute what they should?

    text.py      what compilers write, as ptxvm's parser takes it
    memory.py    one array of bytes: shared memory and symbols below, global memory above
    machine.py   a block's threads: where each stands, and its registers
    block.py     who runs when
    ops.py       one instruction for many lanes at once, in numpy
    exchange.py  what lanes and the copy engine do together: shuffles, atomics, mbarriers, bulk copies

ptxvm checks kscope's protocol, thread by thread, in every order, and knows integers only. Here nothing is recorded (the
control word is 0, as before a session), and what a kernel of an example computes is looked at: marks must not change
it. An instruction that is not there is an error that shows it.
"""
