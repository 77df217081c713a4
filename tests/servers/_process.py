"""A server as a child that dies with its parent, on a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG; Linux


ANSWER_SECONDS: Final = 600.0
"""How long a server may take for a line: to start, or for the slowest order of a test."""


class SilentServer(RuntimeError):
    """A server printed no line in time, and was killed. The message has the end of its log."""


def line_of(child: subprocess.Popen[str], log: Path, seconds: float = ANSWER_SECONDS) -> str:
    """The next line that a child prints, or "" if it has ended. `log` is where its errors go. A child
    that prints none for so many seconds is killed: `SilentServer`.
    """
    assert child.stdout is not None
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        child.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        line = child.stdout.readline()
    finally:
        timer.cancel()
    if is_late.is_set():
        child.wait()
        said = log.read_text(errors="replace")[-800:]
        raise SilentServer(f"{child.args!r} printed no line within {seconds:g} s: {said}")
    return line


class Server:
    """A child process that serves `port` of `host`. `log` holds what it printed. It runs in
    `folder`.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        env: dict[str, str] | None = None,
        seconds: float = 60,
        host: str = "127.0.0.1",
        folder: Path | None = None,
    ) -> None:
        self.port, self.log = port, log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=folder,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise RuntimeError(
                    f"{command[0]} ended with {self.child.returncode}: {self._said()}"
                )
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
                return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(
            f"{command[0]} did not listen on {port} within {seconds:.0f} s: {self._said()}"
        )

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-800:]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        self.child.kill()
        self.child.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
