"""What the warps of a running, hanging or dead program were doing, by its pool file: nothing here uses CUDA."""
