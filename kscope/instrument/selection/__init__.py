"""Selection of code to mark in kernels without marks: the request, the sites found, and the rules for Python source."""
