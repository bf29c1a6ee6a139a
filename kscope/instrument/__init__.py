"""Instrumenting kernels: options, selection of unmarked code, hooks, and the registry of frontends and backends."""
