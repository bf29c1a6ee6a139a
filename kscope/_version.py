"""The version of kscope; pyproject.toml and captures read it here."""

__version__ = "0.1.0"
