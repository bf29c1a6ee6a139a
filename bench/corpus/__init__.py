"""Kernels of other projects, recorded with both placements and checked without a GPU.

    python -m corpus.on_triton FOLDER CHECKOUT ...     PTX with marks, and without, of a checkout's Triton kernels
    python -m corpus.on_inductor FOLDER                of what torch.compile writes
    python -m corpus.on_cupy FOLDER                    of CuPy's own kernels
    python -m corpus.on_numba FOLDER                   of Numba kernels
    python -m corpus.on_nvcc FOLDER FILE.cu ...        of CUDA C++
    python -m corpus FOLDER OUT.json                   judges every kernel in the folder

Run from `bench/`, or with it on the path. A folder has one folder for each source. Nothing of it is part of kscope.
"""
