"""Python imports this module at its start where its folder is in PYTHONPATH. If the environment names
a folder in STACK_SAMPLES, the process writes there where its CPU time goes. So does each worker that
PySpark's daemon forks.

Each line has the epoch time, the CPU seconds since the line before, and the stack, innermost frame
first: `file:function` with `;` between. The timer counts CPU time, so a process that waits writes
nothing. The seconds are those of all threads. They go to the main thread, or to a thread that
does not wait if the main thread does.
"""

import os
import signal
import sys
import threading
import time
from types import FrameType

_FOLDER = os.environ.get("STACK_SAMPLES")
_EACH = 0.005
_DEPTH = 60
_WAITS = frozenset(
    {"accept", "acquire", "poll", "readinto", "readline", "recv", "select", "wait", "send_command"}
)
"""The functions of Python's library and of py4j in which a thread waits."""


def _stack(frame: FrameType | None) -> list[str]:
    """The frames of a stack, innermost first."""
    names = []
    while frame is not None and len(names) < _DEPTH:
        names.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names


def _busy(frame: FrameType | None) -> list[str]:
    """The stack of the main thread, which is at that frame, or of another one if it waits."""
    of_main = _stack(frame)
    if not _is_waiting(of_main):
        return of_main
    main = threading.main_thread().ident
    others = [_stack(other) for ident, other in sys._current_frames().items() if ident != main]
    return next((stack for stack in others if not _is_waiting(stack)), of_main)


def _is_waiting(stack: list[str]) -> bool:
    return (
        not stack
        or stack[0].rpartition(":")[2] in _WAITS
        or stack[0].endswith(("gateway.py:run", "clientserver.py:run"))
    )


def begin() -> None:
    """Begins to write the samples of this process."""
    out = os.open(f"{_FOLDER}/{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    cpu = 0.0  # the time from the start of the process or of its fork belongs to it

    def sample(_signal: int, frame: FrameType | None) -> None:
        nonlocal cpu
        now = time.process_time()
        line = f"{time.time():.3f}\t{now - cpu:.6f}\t{';'.join(_busy(frame))}\n"
        os.write(out, line.encode())
        cpu = now

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _EACH, _EACH)


if _FOLDER:
    begin()
    if any("pyspark" in word and "daemon" in word for word in sys.orig_argv):
        # Only the daemon's children go on as Python. The driver's become the JVM, which a timer that
        # survives `exec` would kill.
        os.register_at_fork(after_in_child=begin)
