"""Numbers from traces: each file one question, answered by a plain function of a Trace."""
