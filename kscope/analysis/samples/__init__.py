"""Samples of stalls: where warps waited and why, by region, line or instruction, and beside the clocks."""
