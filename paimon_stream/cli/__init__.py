"""The command line `paimon-stream`, also `python -m paimon_stream`; its page is `docs/cli.md`.

Importing this costs nothing and needs neither click nor rich: both are loaded by `main`, and what a
command needs is loaded when that command is called. Only `doctor` imports pyspark, to judge a changed schema.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from paimon_stream.errors import MissingExtra
from paimon_stream.extras import require

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command that the arguments name, `sys.argv` by default, and ends the process with its exit
    code (docs/cli.md)."""
    try:
        app = require("paimon_stream.cli.app", "cli", "The command line")
    except MissingExtra as missing:
        sys.stderr.write(f"paimon-stream: {missing.message}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("paimon-stream: interrupted\n")
        sys.exit(130)
    app.cli.main(args)
    raise AssertionError("unreachable")
