"""Shared parts of commands: the parser, filters and other flags, output as JSON, the local web server."""
