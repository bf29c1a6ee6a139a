"""General helpers: threads, files, text. They do not depend on the rest of kscope."""
