"""Trace data: the columns of a trace, filters and transforms. Plain data; nothing here calls upward."""
