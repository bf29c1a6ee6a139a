"""Barriers and pipelines, as `auto="pipeline"` records them: operations, phases, waits, stages."""
