"""A mark: what a user's call leaves in a kernel, its spelling in assembly text, and who records it."""
