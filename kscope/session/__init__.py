"""Sessions: profile(), the states of a process, outputs, and which kernels are kept."""
