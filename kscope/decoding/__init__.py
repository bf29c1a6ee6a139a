"""Decoding: from the words of a capture to columns in nanoseconds."""
