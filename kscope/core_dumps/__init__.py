"""Core dumps that NVIDIA's driver writes of a GPU: where every warp of the dead program stood, without any mark."""
