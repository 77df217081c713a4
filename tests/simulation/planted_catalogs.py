"""Small changes to what commits through catalogs. `planted.py` has the others."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from paimon_stream import errors
from paimon_stream.catalogs import hive, jdbc, rest
from paimon_stream.catalogs.hive import HiveStorage
from paimon_stream.catalogs.jdbc import LockedStorage
from paimon_stream.catalogs.locked import PUBLISHED
from paimon_stream.catalogs.rest import RestStorage
from paimon_stream.commit.publish import Lost, Placed, Publisher
from paimon_stream.storage.base import PutResult
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.catalogs import HIVE, JDBC, REST, Locks

OTHERS = ("batch writer", "twin")


@bug(
    "A commit that the server answers with `success: false` is lost, without a look at who has the id.",
    REST,
    *OTHERS,
    rule=rules.WHOLE,
    why="The snapshot landed although the answer said no, and the manifests of a lost attempt are deleted.",
    seed=4,
)
def false_is_lost_without_a_look(patch: Patch) -> None:
    def put(self: Publisher, staged: Any, retry_budget: Any, usable: Any) -> Any:
        try:
            created = (
                self._snapshots.create_snapshot(staged.snapshot, staged.content)
                is PutResult.CREATED
            )
        except errors.Unavailable:
            return real(self, staged, retry_budget, usable)
        return Placed(doubted=False) if created else Lost(proven=True)

    real = Publisher.put
    patch.setattr(Publisher, "put", put)


@bug(
    "A commit that is answered 503, 500 or not at all counts as refused.",
    REST,
    *OTHERS,
    rule=rules.WHOLE,
    why="The snapshot may have landed, and the manifests of a refused attempt are deleted.",
    seed=4,
)
def no_answer_is_a_refusal(patch: Patch) -> None:
    def commit(self: RestStorage, body: dict[str, Any]) -> PutResult:
        try:
            return real(self, body)
        except errors.Unavailable as why:
            raise errors.StorageError(why.message) from None

    real = RestStorage._commit
    patch.setattr(RestStorage, "_commit", commit)


@bug(
    "The bytes of the server's snapshot are compared with those that were sent.",
    REST,
    *OTHERS,
    rule=rules.WHOLE,
    why="The server writes JSON in its own words, so our own snapshot counts as another's, and its manifests are deleted.",
    seed=4,
)
def bytes_instead_of_the_nonce(patch: Patch) -> None:
    def read(self: RestStorage, path: str, *limit: int) -> bytes:
        found = rest._VERSION.fullmatch(path)
        node = self._shown(found[1]) if found is not None and found[1] else None
        return real(self, path, *limit) if node is None else json.dumps(node).encode()

    real = RestStorage.read
    patch.setattr(RestStorage, "read", read)
    patch.setattr(Publisher, "_is_ours", lambda self, content, staged: content == staged.content)


@bug(
    "A commit is sent with the base that the server has by then.",
    REST,
    "Java keeper",
    *OTHERS,
    rule=rules.NO_VOID,
    why="The server is told that the snapshot was built on its latest, which the writer has never seen.",
    seed=13,
)
def a_post_has_a_new_base(patch: Patch) -> None:
    def commit(self: RestStorage, body: dict[str, Any]) -> PutResult:
        latest = self._shown("LATEST")
        return real(
            self, {**body, "baseSnapshotUuid": None if latest is None else latest.get("uuid")}
        )

    real = RestStorage._commit
    patch.setattr(RestStorage, "_commit", commit)


def _reworded(patch: Patch, old: str, new: str) -> None:
    """The database is asked in other words."""

    def ask(self: Locks, options: Any, *statements: str, **values: Any) -> Any:
        return real(self, options, *(one.replace(old, new) for one in statements), **values)

    real = Locks.ask
    patch.setattr(Locks, "ask", ask)


@bug(
    "The release of a lock that has expired takes that of another.",
    JDBC,
    *OTHERS,
    rule=rules.HOLDERS_LOCK,
    why="Who comes late deletes the row of the one who has the lock now.",
    seed=2,
)
def the_lock_of_another_is_released(patch: Patch) -> None:
    _reworded(patch, " AND acquired_at = :at", "")


@bug(
    "A lock that has expired counts as held.",
    JDBC,
    *OTHERS,
    rule=rules.STREAMS_END,
    why="Nobody ever takes over the lock of a dead holder, so no commit ends.",
)
def an_expired_lock_is_held(patch: Patch) -> None:
    _reworded(patch, "AND {age} > expire_time_seconds", "AND expire_time_seconds < 0")


@bug(
    "A lock that is held counts as expired.",
    JDBC,
    *OTHERS,
    rule=rules.HOLDERS_LOCK,
    why="The row of a living holder is deleted.",
)
def a_held_lock_has_expired(patch: Patch) -> None:
    _reworded(patch, "AND {age} > expire_time_seconds", "AND expire_time_seconds > 0")


@bug(
    "A lock that another holds counts as taken.",
    JDBC,
    *OTHERS,
    rule=rules.HOLDERS_LOCK,
    why="Who believes that he has the lock deletes the row of its holder afterwards.",
)
def the_lock_of_another_is_ours(patch: Patch) -> None:
    _reworded(patch, "INSERT INTO", "INSERT OR IGNORE INTO")


@bug(
    "The lock is released before the snapshot is put.",
    JDBC,
    *OTHERS,
    rule=rules.UNDER_LOCK,
    why="The put of the snapshot follows the release.",
)
def the_lock_is_released_too_early(patch: Patch) -> None:
    def put(self: LockedStorage, path: str, data: bytes) -> PutResult:
        if PUBLISHED.fullmatch(path):
            taken = self._acquire(self.lock_name)
            with suppress(errors.StorageError):
                jdbc.ask(
                    self.options,
                    f"DELETE FROM {jdbc._LOCKS} AND acquired_at = :at",
                    lock=self.lock_name,
                    at=taken,
                )
        return self.wrapped.put_if_absent(path, data)

    patch.setattr(LockedStorage, "put_if_absent", put)


@bug(
    "Who begins while a dead process has the lock takes it away before it expires.",
    JDBC,
    *OTHERS,
    rule=rules.HOLDERS_LOCK,
    why="A put of the dead process may still be on its way, so its lock counts until it expires.",
)
def the_lock_of_the_dead_is_taken(patch: Patch) -> None:
    def acquired(self: LockedStorage, lock: str) -> Any:
        locks = self.options.process.world.locks  # type: ignore[attr-defined]
        if locks.is_of_the_dead:
            jdbc.ask(self.options, f"DELETE FROM {jdbc._LOCKS}", lock=lock)
        return real(self, lock)

    real = LockedStorage._acquire
    patch.setattr(LockedStorage, "_acquire", acquired)


@bug(
    "A lock of the metastore that waits counts as acquired.",
    HIVE,
    *OTHERS,
    rule=rules.UNDER_LOCK,
    why="The snapshot is put while another process has the lock.",
)
def a_waiting_lock_is_acquired(patch: Patch) -> None:
    patch.setattr(HiveStorage, "_is_granted", lambda *_: True)


@bug(
    "A lock of the metastore that comes late is used.",
    HIVE,
    *OTHERS,
    rule=rules.UNDER_LOCK,
    why="The process has paused in front of the answer for so long that the lock has expired.",
    seed=24,
)
def a_late_lock_is_used(patch: Patch) -> None:
    patch.setattr(hive, "_USED_WITHIN", float("inf"))


@bug(
    "A lock of the metastore whose answer was lost is not looked for.",
    HIVE,
    *OTHERS,
    rule=rules.LOCK_GIVEN_BACK,
    why="The metastore keeps the lock of the request, behind which the next one waits.",
    seed=5,
)
def a_lock_without_an_answer_is_left(patch: Patch) -> None:
    patch.setattr(HiveStorage, "_release_marked", lambda *_: None)
