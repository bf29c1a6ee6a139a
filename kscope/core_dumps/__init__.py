"""Core dumps of a GPU by NVIDIA's driver: the place of every warp of the dead program, without any marks."""
