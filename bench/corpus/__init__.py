"""Kernels of other projects, recorded with both placements: checked without a GPU, and run on one.

    python -m corpus.on_triton FOLDER CHECKOUT ...     PTX with marks, and without, of a checkout's Triton kernels
    python -m corpus.on_cupy FOLDER                    of CuPy's own CUDA C++
    python -m corpus.on_nvcc FOLDER SOURCE FILE.cu ... of other CUDA C++
    python -m corpus FOLDER VERDICTS                   judges every kernel in the folder
    python -m corpus.on_device PACKAGES --out FILE     runs entry points of projects on a GPU, see there

PYTHONPATH: the project's folder, `frontends`, `runtime`, `tests` and `bench`. A folder has one folder for each source.
Nothing of it is part of kscope.
"""
