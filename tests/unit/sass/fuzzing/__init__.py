"""Random kernels with marks, recorded in their machine code, run by the interpreter and judged; see __main__.py.

trees.py        a kernel as a random tree of statements
texts.py        its PTX
renamed.py      plain machine code with other registers
batches.py      one call of nvdisasm for many kernels
cases.py        what is drawn for a kernel: its launch, the pool, the options
judging.py      one case: recorded, or refused with a reason; then stripped, checked, run and compared
shrinking.py    a smaller kernel that fails as well
"""
