"""A capture beside other recordings of the same run, on one time axis with a bound."""
