"""Effects of recording: its cost per region, the build with marks compared with the one without, other counts."""
