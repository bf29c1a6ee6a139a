"""Code that a recording kernel executes: the claim of a slab, the records at its marks, and the end."""
