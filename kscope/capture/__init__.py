"""A capture: the recorded words, the layout that explains them, and the `.kscope` file."""
