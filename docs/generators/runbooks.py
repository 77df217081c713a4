"""Renders `docs/runbooks.md` from a run of the accidents in `tests/kits/accidents.py`.

python -m docs.generators.runbooks > docs/runbooks.md
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kits.accidents import ACCIDENTS, Accident, Account, account_of

__all__ = ["render"]

_START: Final = """\
# Runbooks

<!-- Generated: python -m docs.generators.runbooks > docs/runbooks.md -->

Each accident on this page was done to a stream on a local disk that had written four batches. The commands are those that
the message or `paimon-stream doctor` prints, run as they are printed. At the end the stream has written two more
batches, and the rows of the table were compared with those of the source. The stream is the sink without Spark.
[When the query has stopped](operations.md) has every error.
"""
_SECONDS: Final = 60
"""A way that takes longer is a defect: no command here reads many files."""


def render() -> str:
    """The page, from a fresh run."""
    return "\n".join((_START, *map(_section, ACCIDENTS)))


def _section(accident: Accident) -> str:
    with tempfile.TemporaryDirectory() as folder:
        account = account_of(accident, Path(folder))
        assert account.seconds < _SECONDS, f"{accident.name}: {account.seconds:.0f} s"
        return _stable("\n".join(_lines(accident, account)), folder)


def _lines(accident: Accident, account: Account) -> Iterator[str]:
    yield f"## {accident.name}\n"
    yield f"{accident.story} The stream stops:\n"
    yield f"```text\n{account.message}\n```\n"
    cures = re.findall(r"^What to do: .*$", account.doctor, re.MULTILINE)
    if cures:
        yield "The doctor says:\n"
        yield "```text\n" + "\n".join(cures) + "\n```\n"
    if account.commands:
        yield "Run:\n"
        yield "```text\n" + "\n".join(account.commands) + "\n```\n"
    yield f"Then start the query {account.start}. Rows: {account.rows}.\n"


def _stable(text: str, folder: str) -> str:
    """The text without what differs from run to run."""
    text = text.replace(folder, "/data")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-01-01T00:00:00Z", text)
    return re.sub(r"\d+\.\d{3} s later", "1.000 s later", text)


if __name__ == "__main__":
    sys.stdout.write(render())
