"""Instructions from text, and the same instructions with other registers."""
