"""A mark: one user call in a kernel, its form in assembly text, and the strategies that select recording lanes."""
