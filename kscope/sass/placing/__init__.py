"""Where the marks of the PTX stand in the machine code."""
