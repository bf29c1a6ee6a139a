"""`python -m kscope`, and the command `kscope`."""

import gc
import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run this process's command line, and end the process."""
    answers_once = sys.argv[1:2] == ["watch"] and "--once" in sys.argv
    if answers_once:
        gc.disable()
    from .cli import main  # collecting garbage meanwhile would delay the answer

    code = main()
    if answers_once:  # freeing modules and memory one by one takes longer than printing the answer
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
