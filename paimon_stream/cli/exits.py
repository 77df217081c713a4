"""The exit codes, and the code of each error. The codes are public: `docs/cli.md` lists them."""

from typing import Final

from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    FormatError,
    NotFound,
    PaimonStreamError,
    StorageError,
    WriteInterrupted,
)

OK: Final = 0
FINDINGS: Final = 1
USAGE: Final = 2
MISSING: Final = 3
BROKEN: Final = 4
DRY_RUN: Final = 5
DEFECT: Final = 70
INTERRUPTED: Final = 130

MEANING: Final = {
    OK: "Done. Verify found no error; doctor: every stream can restart.",
    FINDINGS: "Findings (verify, doctor), or the table or an option forbids it.",
    USAGE: "The command line is wrong, or the extra `cli` is not installed.",
    MISSING: "There is no such table, snapshot or tag.",
    BROKEN: "Files could not be read, written or understood, or a commit failed.",
    DRY_RUN: "There is something to change. Nothing was changed without `--yes`.",
    DEFECT: "A defect of this program. `--debug` shows where.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}


def code_of(error: PaimonStreamError) -> int:
    """The exit code of a command that ended with this error."""
    if isinstance(error, NotFound):
        named = {"table", "snapshot", "tag"} & error.context.keys()
        return MISSING if named else BROKEN
    if isinstance(error, (FormatError, StorageError, CommitUnknown, CommitContended, WriteInterrupted)):
        return BROKEN
    return FINDINGS
