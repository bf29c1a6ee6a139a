"""A mark: one user call in a kernel, its spelling in assembly text, and the strategies that select recording lanes."""
