"""Machine code: NVIDIA's disassemblers, and the instructions and regions in what they print."""
