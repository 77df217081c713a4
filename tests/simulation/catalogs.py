"""Tables of catalogs. A REST catalog's server answers inside the process: the real client asks a
pool of connections whose other end is here. A JDBC catalog's lock is a row of SQLite in memory,
with the simulated time. `metastore.py` has the lock of a Hive catalog.

The server keeps the rules of `tests/servers/rest_double.py`. It knows what lies on the disk, in its
own JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import urllib3

from paimon_stream import errors
from paimon_stream.catalogs import jdbc, rest
from paimon_stream.catalogs.hive_client import HiveClient, Struct
from paimon_stream.catalogs.jdbc import LockedStorage
from paimon_stream.catalogs.rest import RestStorage, path_of
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import PutResult
from paimon_stream.table.layout import SNAPSHOT_FOLDER, id_in_name, snapshot_path
from tests.simulation import metastore, rules
from tests.simulation.faults import STORM, Fault, ProcessStorage
from tests.simulation.in_flight import wait_until_chosen
from tests.simulation.metastore import HIVE, Metastore
from tests.simulation.state import Violation

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.world import World

REST: Final = "REST catalog"
OLD_REST: Final = "REST catalog of 1.4"
JDBC: Final = "JDBC catalog"
KINDS: Final = (REST, OLD_REST, JDBC, HIVE)

_TABLE_URL: Final = f"/v1/p/{path_of('db', 't')}/"
LOCK: Final = "jdbc.db.t"
LOCK_SECONDS: Final = 480
TAKEN = rules.HOLDERS_LOCK
NO_VOID = rules.NO_VOID
UNLOCKED = rules.UNDER_LOCK

Status = tuple[int, dict[str, Any] | bytes]
"""What is answered: the status, and JSON as a dict or as it is sent."""


def storage_of(process: Process, plain: ProcessStorage) -> Any:
    """The table as a process opens it by its catalog."""
    world = process.world
    if world.catalog == JDBC:
        return Locked(plain, Given(process), LOCK, process.runtime)
    if world.catalog == HIVE:
        return metastore.Served(process, plain)
    if process.actor.by_server or not world.catalog:
        return plain
    own = {
        "uri": "http://server",
        "prefix": "p",
        "token": str(process.number),
        "identifier": path_of("db", "t"),
    }
    own["table-id"] = _table_id(world)
    if world.data_tokens:
        own["data-token.enabled"] = "true"
    options = {"metastore": "rest", **{f"catalog.{key}": one for key, one in own.items()}}
    options["paimon-stream.store.max-outage"] = "30 s"
    return Served(plain.location, options, lambda *_: plain)


class Served(RestStorage):
    """A table of a REST catalog, with what the rewriting of rows keeps here."""

    given: Any = ()


class Locked(LockedStorage):
    """A table of a JDBC catalog, with what the rewriting of rows keeps here."""

    given: Any = ()

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        process: Process = self.options.process  # type: ignore[attr-defined]
        process.under_lock = 0
        return super().put_if_absent(path, data)


class Given(dict[str, str]):
    """The options of a JDBC catalog, and whose they are."""

    def __init__(self, process: Process) -> None:
        super().__init__(uri="jdbc:sqlite:memory")
        self.process = process


@dataclass(frozen=True)
class Now:
    """The world's clock, for what has no runtime of its own."""

    world: World

    def now_millis(self) -> int:
        return self.world.millis

    def monotonic(self) -> float:
        return self.world.millis / 1000

    def sleep(self, seconds: float) -> None:
        self.world.millis += max(1, round(seconds * 1000))


def _table_id(world: World) -> str:
    return f"table-{world.truth.drops}"


@dataclass(frozen=True)
class Answer:
    """What urllib3 returns."""

    status: int
    data: bytes
    headers: Mapping[str, str]


class Server:
    """The server of a REST catalog. `strict`: it compares the uuid of the base, as of 2.0."""

    def __init__(self, world: World, *, strict: bool) -> None:
        self.world, self.strict = world, strict

    def request(
        self, verb: str, url: str, *, body: bytes | None, headers: Mapping[str, str], **_: Any
    ) -> Answer:
        """In place of `urllib3.PoolManager.request`."""
        number = int(headers["Authorization"].removeprefix("Bearer "))
        process = next(one for one in self.world.processes if one.number == number)
        if not process.dead:
            wait_until_chosen()
        rest_of = url.partition(_TABLE_URL)[2].split("/")
        if rest_of == ["commit"]:
            assert verb == "POST" and body is not None
            node = json.loads(body)
            return self._asked(
                process,
                "commit",
                snapshot_path(node["snapshot"]["id"]),
                partial(self._commit, node),
            )
        assert verb == "GET"
        if rest_of == ["token"]:
            until = self.world.millis + 2 * 3_600_000
            token: Status = 200, {"token": {}, "expiresAtMillis": until}
            return (
                self._asked(process, "show", "token", lambda: token)
                if process.busy
                else _said(token)
            )
        version = rest_of[1] if len(rest_of) > 1 else "LATEST"
        return self._asked(
            process, "show", f"snapshot {version}", partial(self._shown, version, len(rest_of) == 1)
        )

    def _asked(
        self, process: Process, verb: str, path: str, answer: Callable[[], Status]
    ) -> Answer:
        world = self.world
        fault = process.reached(verb, path)
        if fault is Fault.STORM:
            world.storm = STORM
        if world.is_refused(process.actor):
            return _said((429, {"message": "too many requests"}))
        if fault is Fault.DIES_BEFORE:
            raise process.die()
        if fault is Fault.FAILS_BEFORE:
            return _said((503, {"message": "busy"}))
        if fault is Fault.TOKEN_EXPIRED:
            return Answer(401, b"", {})
        given = answer() if verb == "show" else self._sent(process, path, answer, fault)
        if fault in (Fault.DIES_AFTER, Fault.LATE_AND_DEAD):
            raise process.die()
        if fault in (Fault.ANSWER_LOST, Fault.LATE):
            raise urllib3.exceptions.ProtocolError("the connection broke")
        if fault is Fault.FAILS_AFTER:
            return _said((world.choices.pick((503, 500, 429, 502)), {"message": "it broke"}))
        return _said(given)

    def _sent(
        self, process: Process, path: str, answer: Callable[[], Status], fault: Fault
    ) -> Status:
        """A commit arrives: now, later, or twice."""
        given: list[Status] = []

        def effect() -> PutResult:
            given.append(answer())
            said = given[-1][1]
            done = isinstance(said, dict) and said.get("success")
            return PutResult.CREATED if done else PutResult.EXISTS

        if fault not in (Fault.LATE, Fault.LATE_AND_DEAD):
            process.plain.take_effect("put", path, effect)
        if fault is Fault.TWICE:
            process.plain.take_effect("put", path, effect)
        if fault in (Fault.LATE, Fault.LATE_AND_DEAD, Fault.AGAIN_LATER):
            self.world.late.append((process, "put", path, effect))
        return given[-1] if given else (200, {})

    def _shown(self, version: str, wrapped: bool) -> Status:
        path = self._path_of(version)
        if path is None or not self.world.disk.exists(path):
            return 404, {
                "resourceType": "SNAPSHOT",
                "resourceName": "db",
                "message": "no snapshot",
                "code": 404,
            }
        node = self.world.disk.read(path)
        return (
            200,
            b'{"snapshot": {"snapshot": %b}}' % node if wrapped else b'{"snapshot": %b}' % node,
        )

    def _path_of(self, version: str) -> str | None:
        """The file of a snapshot by its id, LATEST or EARLIEST; None if there is none."""
        if version.isdigit():
            return snapshot_path(int(version))
        ids = self._ids() if version in ("LATEST", "EARLIEST") else set()
        return snapshot_path(max(ids) if version == "LATEST" else min(ids)) if ids else None

    def _commit(self, node: dict[str, Any]) -> Status:
        if node["tableId"] != _table_id(self.world):
            return 404, {
                "resourceType": "TABLE",
                "resourceName": "t",
                "message": "no such table",
                "code": 404,
            }
        ids, snapshot = self._ids(), dict(node["snapshot"])
        if self.strict:
            latest = self._snapshot(max(ids)).get("uuid") if ids else None
            counts = node["baseSnapshotUuid"] == latest
        else:
            counts, _ = True, snapshot.pop("uuid")
        if snapshot["id"] in ids or not counts:
            return 200, {"success": False}
        text = json.dumps(dict(sorted(snapshot.items()))).encode()
        put = self.world.disk.put_if_absent(snapshot_path(snapshot["id"]), text)
        assert put is PutResult.CREATED
        return 200, {"success": True}

    def _ids(self) -> set[int]:
        names = self.world.disk.list_names(SNAPSHOT_FOLDER)
        return {found for one in names if (found := id_in_name(one, "snapshot-")) is not None}

    def _snapshot(self, number: int) -> dict[str, Any]:
        return _parsed(self.world.disk.read(snapshot_path(number)))


@lru_cache(1024)
def _parsed(content: bytes) -> dict[str, Any]:
    """What a snapshot's file says. Nobody changes it."""
    node: dict[str, Any] = json.loads(content)
    return node


def _said(answer: Status) -> Answer:
    status, node = answer
    return Answer(status, node if isinstance(node, bytes) else json.dumps(node).encode(), {})


class Locks:
    """The database of a JDBC catalog. `holder` is who has the lock, `stolen` who lost it to a
    release of Java's.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.holder: Process | None = None
        self.stolen: set[Process] = set()
        self.rows = sqlite3.connect(":memory:", isolation_level=None)
        self.rows.create_function("current_timestamp", 0, self._now)
        self.rows.create_function("strftime", 2, self._seconds)
        table = "paimon_distributed_locks"
        self.rows.execute(f"CREATE TABLE {table} ({jdbc._TABLES[table]})")

    def _now(self) -> str:
        return datetime.fromtimestamp(self.world.millis // 1000, timezone.utc).strftime(
            "%Y-%m-%d %H:%M:%S"
        )

    def _seconds(self, _: str, when: str) -> int:
        given = self._now() if when == "now" else when
        return int(
            datetime.strptime(given, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
        )

    def ask(self, options: Given, *statements: str, **values: Any) -> Any:
        """In place of `jdbc.ask`: one transaction."""
        process = options.process
        verb = "unlock" if "expire_time_seconds" not in statements[0] else "lock"
        if not process.dead:
            wait_until_chosen()
        fault = process.reached(verb, LOCK)
        if fault is Fault.DIES_BEFORE:
            raise process.die()
        if fault is Fault.FAILS_BEFORE:
            raise errors.Unavailable("the connection to the catalog's database broke")
        answer = self._done(process, statements, values)
        if fault is Fault.DIES_AFTER:
            raise process.die()
        if fault is Fault.ANSWER_LOST:
            raise errors.Unavailable("the connection to the catalog's database broke")
        return answer

    def _done(self, process: Process, statements: tuple[str, ...], values: dict[str, Any]) -> Any:
        before = self._held()
        try:
            found = [
                self.rows.execute(one.replace("{age}", jdbc._KINDS["sqlite"][2]), values)
                for one in statements
            ]
        except sqlite3.IntegrityError:
            raise errors.AlreadyExists("the row is there") from None
        answer, after = found[-1].fetchall(), self._held()
        if before is not None and after is None:
            live = self._seconds("", "now") - self._seconds("", before) <= LOCK_SECONDS
            if self.holder is not process and live:
                if process.actor.kind.startswith("Java") and self.holder is not None:
                    self.stolen.add(self.holder)
                else:
                    self._broken(
                        TAKEN, f"{process.name} ends the lock of {self.holder and self.holder.name}"
                    )
        if after is None:
            self.holder = None
        elif before is None:
            self.holder, process.under_lock = process, self.world.millis
            self.stolen.discard(process)
        return answer

    @property
    def is_of_the_dead(self) -> bool:
        """Whether a process that is dead has the lock, which may have expired."""
        return self.holder is not None and self.holder.dead and self._held() is not None

    def _held(self) -> str | None:
        row = self.rows.execute("SELECT acquired_at FROM paimon_distributed_locks").fetchone()
        return None if row is None else row[0]

    def check(self, process: Process, path: str) -> None:
        """What holds when a process publishes a snapshot."""
        old = (
            self.world.millis - process.under_lock >= 1000 * LOCK_SECONDS
            if process.under_lock
            else False
        )
        if self.holder is not process and not old and process not in self.stolen:
            self._broken(UNLOCKED, f"{process.name} puts {path} without the lock")

    def _broken(self, rule: str, what: str) -> None:
        self.world.verdict = Violation(rule, what)
        raise self.world.verdict


@contextmanager
def under_java_lock(process: Process) -> Iterator[None]:
    """Java's lock. In a JDBC catalog, a release takes it from whoever holds it. In tables without
    such a lock there is none.
    """
    world = process.world
    if world.locks is None:
        yield
        return
    if isinstance(world.locks, Metastore):
        with process.storage._lock_of_branch(None):
            yield
        return
    locked = Locked(process.plain, Given(process), LOCK, process.runtime)
    locked._acquire(LOCK)
    try:
        yield
    finally:
        if not process.dead:
            with suppress(errors.StorageError):
                world.locks.ask(Given(process), f"DELETE FROM {jdbc._LOCKS}", lock=LOCK)


def _asking(locks: Metastore) -> Callable[[HiveClient, str, Struct], Any]:
    """The metastore as a method of its client."""

    def ask(client: HiveClient, method: str, arguments: Struct) -> Any:
        return locks.ask(client, method, arguments)

    return ask


@contextmanager
def answering(world: World) -> Iterator[None]:
    """While a schedule runs, the table's catalog answers."""
    if not world.catalog:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(world.locks, Locks):
            patch.setattr(jdbc, "ask", world.locks.ask)
        elif isinstance(world.locks, Metastore):
            patch.setattr(HiveClient, "ask", _asking(world.locks))
        else:
            runtime = Runtime(clock=cast(Any, Now(world)), rng=world.dice, ids=world.ids)
            patch.setattr(rest, "system", lambda: runtime)
            patch.setitem(
                cast(Any, rest._POOLS), os.getpid(), Server(world, strict=world.catalog == REST)
            )
        yield
