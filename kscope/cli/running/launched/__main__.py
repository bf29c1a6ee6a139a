"""`kscope` in a child of a launcher, whose sys.path does not get this folder."""

import sys
from pathlib import Path

if __name__ == "__main__":
    del sys.path[0]
    try:
        from kscope.cli import main
    except ModuleNotFoundError:  # kscope was found in the launcher's folder
        sys.path.append(str(Path(__file__).resolve().parents[4]))
        from kscope.cli import main
    sys.exit(main())
