"""Pool files: a session with `survive=` records into one, so that its records outlive the program."""
