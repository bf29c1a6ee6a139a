"""`python -m kscope`: the same as the command `kscope`."""

from .cli import main

raise SystemExit(main())
