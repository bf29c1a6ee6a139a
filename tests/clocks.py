"""`kscope run` whose --timeout needs no time, and is long enough on every machine."""

CLOCK = """
import sys
from pathlib import Path
from kscope.cli import main
from kscope.cli.running import supervised

class Time:
    "A minute has passed once the program hangs, which it says by a file."
    @staticmethod
    def monotonic():
        return 60.0 * Path("hangs").exists()

supervised.time, supervised._LOOK_S = Time, 0.05
sys.exit(main(sys.argv[1:]))
"""
"""python -c CLOCK run --timeout 1m ..."""
