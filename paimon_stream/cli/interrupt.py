"""Ctrl-C in a command that waits in a library for an answer.

Python runs a signal's handler when the library returns to it, and a pool of threads is left when each of them
has its answer. A request to a store that accepts connections and never answers returns after many seconds. So
a thread of its own ends the process.
"""

import os
import signal
import socket
import sys
import threading
from typing import Final

from paimon_stream.cli.exits import INTERRUPTED
from paimon_stream.runtime import system

_GRACE_SECONDS: Final = 2
_SHOW_CURSOR: Final = "\x1b[?25h"
_handled = threading.Event()


def watch() -> None:
    """From now on, the process ends with 130 two seconds after Ctrl-C if the command has not ended by itself.
    That does no more harm than a kill. Must be called in the main thread."""
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_late, args=(reads, writes), daemon=True).start()


def handled() -> None:
    """The command has noticed Ctrl-C, and has said so."""
    _handled.set()


def _end_late(reads: socket.socket, _open: socket.socket) -> None:
    """Reads the numbers of signals. The end to which Python writes them stays open as long as this runs."""
    while reads.recv(1) != bytes([signal.SIGINT]):
        continue
    system().clock.sleep(_GRACE_SECONDS)
    if not _handled.is_set():
        shown = _SHOW_CURSOR if sys.stderr.isatty() else ""
        sys.stderr.write(f"{shown}paimon-stream: interrupted while it waited for an answer.\n")
        sys.stderr.flush()
    os._exit(INTERRUPTED)
