"""Reports the state of the warps of a running, hanging or dead program from its pool file, without CUDA."""
