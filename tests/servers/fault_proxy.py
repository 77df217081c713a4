"""An HTTP proxy that fails by its rules, in front of an object store or a REST catalog on loopback.

    with FaultProxy("127.0.0.1:5555") as proxy:            # a thread of this process
        proxy.add(Rule(method="PUT", path="snapshot-7$", action="drop_answer"))
        store = S3Store("bucket", endpoint=proxy.url, ...)
        ...
        assert proxy.fired == 1 and [e.method for e in proxy.log] == ["PUT", "GET"]

    python fault_proxy.py --target 127.0.0.1:5555 --port 5600 --rules rules.json     # or a process of its own

The process takes orders at /__proxy__/rules (GET, POST a JSON list, DELETE) and shows
/__proxy__/log.

Actions, by what has happened at the server when the client sees the failure:

| action         | server has done it | the client sees                                          |
|----------------|--------------------|----------------------------------------------------------|
| `refuse`       | no                 | the connection closes at once                            |
| `cut_body`     | no (half a body)   | the connection closes after half of the request's body   |
| `answer`       | no                 | `status` and `body` (503, 500, 409, 412, 403, 429, …)    |
| `delay`        | yes                | the right answer, sent on after `seconds`                |
| `hold`         | when released      | the right answer, after `proxy.release()`                |
| `drop_answer`  | yes                | the connection closes instead of an answer               |
| `hang`         | yes                | nothing for `seconds`, then the connection closes        |
| `answer_after` | yes                | `status` instead of the right answer                     |
| `half_answer`  | yes                | the head and half of the answer's body, then it closes   |
| `die_before`   | no                 | the same as `refuse`; the process of the proxy is killed |
| `die_after`    | yes                | the same as `drop_answer`; the process is killed         |
| `late`         | yes, `seconds`     | the connection closes at once; the request reaches the   |
|                | later              | server only then: the put that overtakes its own retry   |

Bodies are kept whole in memory; HTTP/1.1 only; answers 100-continue itself; the Host header goes
through as it came, so that signatures still hold. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

ACTIONS = (
    "refuse",
    "cut_body",
    "answer",
    "delay",
    "hold",
    "drop_answer",
    "hang",
    "answer_after",
    "half_answer",
    "late",
    "die_before",
    "die_after",
)
HOP = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "expect",
    "transfer-encoding",
    "content-length",
}
S3_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>planned fault</Message></Error>'
S3_CODES = {
    403: "AccessDenied",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
}


@dataclass
class Rule:
    """What to do with requests whose method equals `method` ("" all), whose path and query match
    the regular expression `path` and whose head matches `head`: after `skip` of them, `times` of
    them (None: all), each with `probability`.
    """

    action: str
    method: str = ""
    path: str = ""
    head: str = ""
    skip: int = 0
    times: int | None = 1
    probability: float = 1.0
    seconds: float = 0.0
    status: int = 503
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    fired: int = 0

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"{self.action!r} is none of {', '.join(ACTIONS)}")


@dataclass
class Entry:
    """One request that came: `status` is what the server answered (None: it was not asked), `sent`
    what the client got (None: no answer). Bodies are kept as text if `record` is given.
    """

    method: str
    path: str
    action: str | None
    status: int | None
    sent: int | None
    millis: float
    at: float
    headers: dict[str, str]
    request: str | None = None
    answer: str | None = None


class FaultProxy:
    """The proxy in a thread of this process. `target` is HOST:PORT; only loopback is listened
    to.
    """

    def __init__(
        self, target: str, port: int = 0, seed: int | None = None, record: bool = False
    ) -> None:
        self.host, _, self.target_port = target.partition(":")
        self.record = record
        self.translate: Callable[[dict[str, str]], None] | None = (
            None  # changes request headers on their way
        )
        self.port, self.rules, self.log = port, [], []
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds them weakly
        self._ready = threading.Event()
        self.struck = threading.Event()  # set when a request has met a rule

    # -- use --------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def fired(self) -> int:
        """How many requests were failed so far."""
        return sum(rule.fired for rule in self.rules)

    def add(self, *rules: Rule) -> None:
        with self._lock:
            self.rules.extend(rules)

    def clear(self) -> None:
        with self._lock:
            self.rules, self.log = [], []

    def release(self) -> None:
        """Lets all held requests go, and those to come."""
        self._loop.call_soon_threadsafe(self._held.set)

    def start(self) -> FaultProxy:
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.thread.start()
        self._ready.wait(10)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- within -----------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._loop, self._held, self._done = (
            asyncio.get_running_loop(),
            asyncio.Event(),
            asyncio.Event(),
        )
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port, limit=1 << 20)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._done.wait()
        server.close()

    def _hold_task(self) -> None:
        """Keeps the current task until it ends.

        A client that has gone leaves a task that waits for the server's answer. Only the task
        itself then refers to what it waits for, so the garbage collector would end it, at a moment
        at which the loop may be closed.
        """
        if task := asyncio.current_task():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: list[Any] = []
        self._hold_task()
        try:
            while await self._one(reader, writer, upstream):
                pass
        except (
            OSError,
            asyncio.CancelledError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ValueError,
        ):
            pass
        finally:
            for stream in (writer, *upstream[1:]):
                stream.close()

    async def _one(self, reader, writer, upstream) -> bool:
        head = await _head(reader)
        if head is None:
            return False
        began, (line, headers) = time.monotonic(), head
        method, path, _ = line.split(" ", 2)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if path.startswith("/__proxy__/"):
            return await self._order(
                method, path, await _body(reader, headers, request=True), writer
            )
        rule = self._due(method, path, line, headers)
        action = rule.action if rule else None
        entry = Entry(method, path, action, None, None, 0.0, time.time(), headers)
        with self._lock:
            self.log.append(entry)
        try:
            if action == "refuse":
                return False
            body = await _body(reader, headers, request=True)
            entry.request = body.decode("utf-8", "replace") if self.record else None
            if action == "cut_body":
                await self._send(upstream, line, headers, body[: len(body) // 2], len(body))
                await asyncio.sleep(0.05)
                return False
            if action == "answer":
                entry.sent = rule.status
                return await _answer(writer, rule.status, *_planned(rule, method))
            if action == "die_before":
                os.kill(os.getpid(), signal.SIGKILL)
            if action == "late":
                asyncio.get_running_loop().create_task(
                    self._late(rule.seconds, line, headers, body, entry)
                )
                return False
            if action == "delay":
                await asyncio.sleep(rule.seconds)
            if action == "hold":
                await self._held.wait()
            status, reason, answer_headers, answer = await self._ask(
                upstream, line, headers, body, method
            )
            entry.status, entry.answer = (
                status,
                answer.decode("utf-8", "replace") if self.record else None,
            )
            if action == "hang":
                await asyncio.sleep(rule.seconds)
            if action == "die_after":
                os.kill(os.getpid(), signal.SIGKILL)
            if action in ("drop_answer", "hang"):
                return False
            if action == "answer_after":
                entry.sent = rule.status
                return await _answer(writer, rule.status, *_planned(rule, method))
            entry.sent = status
            length = answer_headers.get("content-length") if method == "HEAD" else str(len(answer))
            out = [f"HTTP/1.1 {status} {reason}"] + [
                f"{k}: {v}" for k, v in answer_headers.items() if k not in HOP
            ]
            if status >= 200 and status != 204 and length is not None:
                out.append(f"content-length: {length}")
            writer.write("\r\n".join([*out, "", ""]).encode("latin-1"))
            writer.write(answer[: len(answer) // 2] if action == "half_answer" else answer)
            await writer.drain()
            return action != "half_answer" and headers.get("connection", "").lower() != "close"
        finally:
            entry.millis = (time.monotonic() - began) * 1000

    def _due(self, method: str, path: str, line: str, headers: dict[str, str]) -> Rule | None:
        text = "\n".join([line, *(f"{k}: {v}" for k, v in headers.items())])
        with self._lock:
            for rule in self.rules:
                if (
                    rule.method in ("", method)
                    and re.search(rule.path, path)
                    and re.search(rule.head, text)
                ):
                    rule.seen += 1
                    spent = rule.times is not None and rule.fired >= rule.times
                    if (
                        rule.seen > rule.skip
                        and not spent
                        and self._random.random() < rule.probability
                    ):
                        rule.fired += 1
                        self.struck.set()
                        return rule
        return None

    async def _late(self, seconds, line, headers, body, entry) -> None:
        self._hold_task()
        await asyncio.sleep(seconds)
        fresh: list[Any] = []
        entry.status = (await self._ask(fresh, line, headers, body, line.split(" ")[0]))[0]
        if fresh:  # the server has not closed the connection
            fresh[1].close()

    async def _send(self, upstream, line, headers, body: bytes, length: int) -> None:
        if not upstream:
            upstream.extend(
                await asyncio.open_connection(self.host, int(self.target_port), limit=1 << 20)
            )
        if self.translate is not None:
            self.translate(headers := dict(headers))
        lines = [line] + [f"{k}: {v}" for k, v in headers.items() if k not in HOP]
        if length or line.startswith(("PUT", "POST")):
            lines.append(f"content-length: {length}")
        upstream[1].write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await upstream[1].drain()

    async def _ask(self, upstream, line, headers, body: bytes, method: str):
        for attempt in (1, 2):
            reused = bool(upstream)
            try:
                await self._send(upstream, line, headers, body, len(body))
                found = await _head(upstream[0])
                while found is not None and found[0].split(" ")[1].startswith("1"):
                    found = await _head(upstream[0])
                if found is None:
                    raise ConnectionResetError("the server closed the connection")
                break
            except OSError:
                if upstream:
                    upstream[1].close()
                upstream.clear()
                if (
                    not reused or attempt == 2
                ):  # an idle connection that the server had closed is opened again
                    raise
        status_line, answer_headers = found
        _, status, *reason = status_line.split(" ", 2)
        bare = method == "HEAD" or status in ("204", "304")
        answer = b"" if bare else await _body(upstream[0], answer_headers, request=False)
        if answer_headers.get("connection", "").lower() == "close":
            upstream[1].close()
            upstream.clear()
        return int(status), "".join(reason), answer_headers, answer

    async def _order(self, method: str, path: str, body: bytes, writer) -> bool:
        if path.endswith("/log"):
            with self._lock:
                shown = json.dumps([asdict(entry) for entry in self.log])
        else:
            if method == "POST":
                self.add(*(Rule(**rule) for rule in json.loads(body)))
            if method == "DELETE":
                self.clear()
            with self._lock:
                shown = json.dumps([asdict(rule) for rule in self.rules])
        return await _answer(writer, 200, shown.encode(), {"content-type": "application/json"})


async def _head(reader: asyncio.StreamReader):
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for one in rest:
        name, _, value = one.partition(":")
        headers[name.strip().lower()] = value.strip()
    return line, headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str], request: bool) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        while (await reader.readuntil(b"\r\n")) != b"\r\n":
            pass
        return b"".join(parts)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return b"" if request else await reader.read()


def _planned(rule: Rule, method: str) -> tuple[bytes, dict[str, str]]:
    body = (
        rule.body
        if rule.body is not None
        else S3_ERROR.format(code=S3_CODES.get(rule.status, "InternalError"))
    )
    return b"" if method == "HEAD" else body.encode(), {
        "content-type": "application/xml",
        **rule.headers,
    }


async def _answer(writer, status: int, body: bytes, headers: dict[str, str]) -> bool:
    lines = (
        [f"HTTP/1.1 {status} Planned"]
        + [f"{k}: {v}" for k, v in headers.items()]
        + [f"content-length: {len(body)}"]
    )
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    await writer.drain()
    return True


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--target", required=True, help="HOST:PORT of the server")
    options.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one"
    )
    options.add_argument("--rules", help="a JSON file: a list of rules")
    options.add_argument("--seed", type=int)
    options.add_argument("--record", action="store_true", help="keep bodies in the log")
    given = options.parse_args()
    proxy = FaultProxy(given.target, given.port, given.seed, given.record)
    if given.rules:
        with open(given.rules) as file:
            proxy.add(*(Rule(**rule) for rule in json.load(file)))
    proxy.start()
    print(json.dumps({"port": proxy.port, "url": proxy.url}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
