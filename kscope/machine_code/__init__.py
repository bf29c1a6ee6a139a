"""Machine code: NVIDIA's disassemblers, instructions and regions in what they print, and blocks that fit on an SM."""
