"""Merges a capture with other recordings of the same run, on one time axis with an error bound."""
