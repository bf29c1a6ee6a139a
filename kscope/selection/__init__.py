"""Selection: what to mark in kernels that nobody annotated.

What lives here: what can be asked for (auto.py), the sites that were found (catalogue.py), and for kernels that are
Python source, statements by their kind (pykinds.py) and by their lines (pylines.py). What does not: where marks go in a
compiler's own text (frontends), and which kernels record (kscope/chosen.py, kscope/sampling.py).
"""
