"""Maps the marks of the PTX to places in the machine code."""
