"""kscope for CUDA C++."""
