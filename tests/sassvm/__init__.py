"""A small interpreter of machine code for sm_80 to sm_90: runs the code that kscope inserts into a kernel, with no GPU.

    values.py        operands: registers, constants, numbers
    ops.py           one instruction in one lane
    machine.py       warps: lanes that diverge and meet, votes, uniform registers, memory
    whole_kernel.py  warps that also run the plain kernel's code

It uses the memory, the clocks, the host and the judge of ptxvm. Only results are modeled, not time: hazards.py has the
cycles. The kernel's floating-point and shared-memory instructions have the result 0, except in whole_kernel.py; any
other unknown instruction is an error.
"""
