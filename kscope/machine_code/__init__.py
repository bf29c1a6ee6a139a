"""Machine code: NVIDIA's disassemblers, instructions and regions in their output, and blocks that fit on an SM."""
