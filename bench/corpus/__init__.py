"""Kernels of other projects, recorded with both placements and checked without a GPU.

    python -m corpus.on_triton FOLDER CHECKOUT ...     PTX with marks, and without, of a checkout's Triton kernels
    python -m corpus.on_cupy FOLDER                    of CuPy's own CUDA C++
    python -m corpus.on_nvcc FOLDER SOURCE FILE.cu ... of other CUDA C++
    python -m corpus FOLDER VERDICTS                   judges every kernel in the folder

PYTHONPATH: the project's folder, `frontends`, `runtime`, `tests` and `bench`. A folder has one folder for each source.
Nothing of it is part of kscope.
"""
