"""The command line `paimon-stream`, also `python -m paimon_stream`. Its documentation is
`docs/cli.md`.

This module imports neither click nor rich. `main` imports both, and each command imports its other
modules when it is called. Only `doctor` imports pyspark, to judge a schema.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from paimon_stream import errors
from paimon_stream.cli.exits import INTERRUPTED, USAGE, watch_ctrl_c
from paimon_stream.extras import require

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command that `args` name (by default `sys.argv`), and ends the process with its exit
    code.
    """
    watch_ctrl_c()
    try:
        app = require("paimon_stream.cli.app", "cli", "The command line")
    except errors.MissingExtra as missing:
        sys.stderr.write(f"paimon-stream: {missing.message}\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.stderr.write("paimon-stream: interrupted\n")
        sys.exit(INTERRUPTED)
    app.cli.main(args)
    raise AssertionError("unreachable")
