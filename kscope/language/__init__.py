"""The API inside kernels: regions, scopes, instants, counters and device helpers."""
