"""The captures of a job's ranks: one clock, one timeline or dataset, and which rank is late."""
