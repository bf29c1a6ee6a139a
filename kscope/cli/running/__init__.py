"""How `kscope run` and `kscope sample` run a program: here, in a child with a timeout, or below a launcher."""
