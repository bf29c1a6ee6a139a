"""Barriers and pipelines of recordings with `auto="pipeline"`: operations, phases, waits, stages."""
