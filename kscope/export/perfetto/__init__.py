"""Perfetto's .pftrace: names and tracks, then events as rows of bytes."""
