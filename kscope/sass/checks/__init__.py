"""Checks of code with inserted instructions; independent of the code that places them."""
