"""What several commands share: the parser, filters and other flags, output as JSON, the local web server."""
