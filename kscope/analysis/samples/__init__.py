"""Samples of stalls: where warps stood and why, by region, line or instruction, and beside the clocks."""
