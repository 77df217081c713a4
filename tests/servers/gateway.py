"""A fault proxy in a process of its own that is started again whenever it has died.

with Gateway(server.port, folder) as gateway:
    gateway.order(Rule("die_after", method="PUT", path="snapshot-7$"))
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from dataclasses import asdict
from pathlib import Path

from tests.servers._process import Server, free_port
from tests.servers.fault_proxy import Rule


class Gateway:
    """`deaths` counts how often it was killed. It has no rules after that."""

    def __init__(self, target: int, folder: Path) -> None:
        self.deaths, self.port = 0, free_port()
        program = str(Path(__file__).with_name("fault_proxy.py"))
        self._command = [sys.executable, "-S", program, "--target", f"127.0.0.1:{target}"]
        self._command += ["--port", str(self.port)]
        self._log, self._ended = folder / "gateway.log", False
        self._server = self._started()
        self._watch = threading.Thread(target=self._start_again)
        self._watch.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def order(self, *rules: Rule) -> None:
        """Replaces the rules."""
        url = f"{self.url}/__proxy__/rules"
        for method, body in (
            ("DELETE", None),
            ("POST", json.dumps([asdict(one) for one in rules]).encode()),
        ):
            urllib.request.urlopen(
                urllib.request.Request(url, body, method=method), timeout=900
            ).read()

    def _started(self) -> Server:
        return Server(self._command, self.port, self._log)

    def _start_again(self) -> None:
        while True:
            self._server.child.wait()
            if self._ended:
                return
            self.deaths += 1
            self._server = self._started()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._server.stop()
        self._watch.join()
