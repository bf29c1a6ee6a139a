"""Helpers that know nothing of kscope: threads, files, text."""
