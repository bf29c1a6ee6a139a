"""Instructions from text, and instructions with renamed registers."""
