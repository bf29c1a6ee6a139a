"""What a user writes inside a kernel: regions, scopes, instants, counters and device helpers."""
