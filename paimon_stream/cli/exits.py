"""How a command ends: the exit codes, which are public, and the end of the process after Ctrl-C.
This module imports neither click nor rich.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

from paimon_stream import errors
from paimon_stream.runtime import system

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
    MISSING: "There is no such table, database, snapshot or tag.",
    BROKEN: "Files could not be read, written or understood, or a commit failed.",
    DRY_RUN: "There is something to change. Nothing was changed without `--yes`.",
    DEFECT: "A defect of this program. `--debug` shows where.",
    INTERRUPTED: "Interrupted by Ctrl-C.",
}


_ASKED_FOR: Final = frozenset({"table", "snapshot", "tag", "database"})
"""The things that a command line can name. If an error says that something else is missing, a file
is gone.
"""
_BROKEN_ERRORS: Final = (
    errors.FormatError,
    errors.StorageError,
    errors.CommitUnknown,
    errors.CommitContended,
    errors.WriteInterrupted,
)


def code_of(error: errors.PaimonStreamError) -> int:
    """The exit code of a command that ended with this error."""
    if isinstance(error, errors.NotFound):
        is_asked_for = not _ASKED_FOR.isdisjoint(error.context)
        return MISSING if is_asked_for else BROKEN
    return BROKEN if isinstance(error, _BROKEN_ERRORS) else FINDINGS


_GRACE_SECONDS: Final = 2
_SHOW_CURSOR: Final = "\x1b[?25h"
_handled = threading.Event()
"""Set once the command has noticed Ctrl-C and has printed that."""
before_late_end: Final[list[Callable[[], object]]] = []
"""The functions that restore the terminal that a command has taken, if the command does not end by
itself.
"""


def watch_ctrl_c() -> None:
    """After this call, Ctrl-C always ends the process. If the command has not ended by itself
    within two seconds, the process ends with exit code 130. This end does no more harm than a kill.
    The function must be called in the main thread.

    A separate thread ends the process, because the main thread may not be able to do so. Python
    runs the handler of a signal only after a library has returned. A pool of threads ends only
    after each thread has its answer. A request to a store that accepts connections but never
    answers returns only after many seconds.
    """
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_late, args=(reads, writes), daemon=True).start()


def ctrl_c_is_handled() -> None:
    """Notes that the command has noticed Ctrl-C and prints a message about it."""
    _handled.set()


def _end_late(reads: socket.socket, _open: socket.socket) -> None:
    """Ends the process after Ctrl-C. `reads` receives the numbers of signals. `_open` is the other
    end of the connection, to which Python writes these numbers. It is an argument only because it
    must stay open as long as this function runs.
    """
    while reads.recv(1) != bytes([signal.SIGINT]):
        continue
    system().clock.sleep(_GRACE_SECONDS)
    if not _handled.is_set():
        for give_back in before_late_end:
            give_back()
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        sys.stderr.write(f"{cursor}paimon-stream: interrupted while it waited for an answer.\n")
        sys.stderr.flush()
    os._exit(INTERRUPTED)
