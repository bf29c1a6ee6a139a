"""Analyses of traces: each file answers one question with a plain function of a Trace."""
