"""A cubin, read and written: its sections, its functions as instructions, and more instructions inserted into them."""
