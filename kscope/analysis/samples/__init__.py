"""Stall samples: where warps waited and why, by region, line or instruction, and compared with the clocks."""
