"""Pool files: what a session with `survive=` records into, so that it outlives its program."""
