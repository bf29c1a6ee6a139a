"""Sessions: profile(), the states of a process, outputs, and the kernel filter."""
