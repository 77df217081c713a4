"""Runs cases in child processes with a limit of memory and of time.

`outcomes("tests.property.crafted_files")` starts one Python process. It imports the module and
forks for each function in the module's `CASES`, so a case costs a fork and not a start of Python.
"""

from __future__ import annotations

import importlib
import json
import logging
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Outcome", "note", "outcomes"]

_MEGABYTE: Final = 1 << 20
_SHOWN: Final = 6000
_NOTED: Final = mmap.mmap(-1, 1 << 16)
"""What a case does now. It is shared with the parent, who tells it if the case is ended by a
signal.
"""
_ARROW: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did: the name of the error that it raised ("" for none), the error's text, its
    seconds of the processor, and the megabytes of memory that it needed beyond those of an empty
    case.
    """

    error: str
    text: str
    seconds: float
    megabytes: float


def outcomes(
    module: str,
    *,
    cases: str = "CASES",
    megabytes: int = 1024,
    seconds: int = 30,
) -> dict[str, Outcome]:
    """The outcome of each of these `cases` of the module. A case that needs more than `megabytes` gets a `MemoryError`. One
    that takes more than four times `seconds` by the clock is ended by a signal, and its error is
    "SIGALRM". The text of a case that a signal ended is its last `note`.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, module, cases, str(megabytes), str(seconds)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_ARROW},
    )
    return {name: Outcome(**found) for name, found in json.loads(done.stdout).items()}


def note(doing: str) -> None:
    """Says what the case does next, for the outcome of one that dies."""
    text = doing.encode()[: len(_NOTED) - 1]
    _NOTED[: len(text) + 1] = text + b"\0"


def _one(case: Callable[[str], object], limit: int, seconds: int) -> tuple[str, str]:
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(4 * seconds)
    logging.disable()
    try:
        with tempfile.TemporaryDirectory() as folder:
            case(folder)
    except BaseException as raised:  # noqa: BLE001 - the outcome may be any error
        return type(raised).__name__, str(raised)[:_SHOWN]
    return "", ""


def _forked(case: Callable[[str], object], limit: int, seconds: int) -> dict[str, Any]:
    note("")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        found = _one(case, limit, seconds)
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as source:
        text = source.read()
    _, status, used = os.wait4(child, 0)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    noted = _NOTED[: _NOTED.find(b"\0")].decode(errors="replace")[:_SHOWN]
    error, message = (signal.Signals(died).name, noted) if died else json.loads(text)
    return {
        "error": error,
        "text": message,
        "seconds": round(used.ru_utime + used.ru_stime, 3),
        "megabytes": used.ru_maxrss * 1024 / _MEGABYTE,
    }


def main(module: str, name: str, megabytes: str, seconds: str) -> None:
    """Prints the outcomes of a module's cases as JSON."""
    cases = getattr(importlib.import_module(module), name)
    limits = int(megabytes) * _MEGABYTE, int(seconds)
    empty = _forked(lambda _: None, *limits)["megabytes"]
    made = {}
    for name, case in cases.items():
        made[name] = _forked(case, *limits)
        made[name]["megabytes"] = round(made[name]["megabytes"] - empty, 1)
    print(json.dumps(made))


if __name__ == "__main__":
    importlib.import_module("tests.kits.limited").main(
        *sys.argv[1:]
    )  # the module that cases import
