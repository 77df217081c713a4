"""Where the tables of tests are: in memory, or in a store, with TEST_STORE=s3, azure or gcs.

On a store, tests that try every case try some of them, one in TEST_STEP, because each takes seconds
there. Which ones, is a matter of the test's turn.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.seeds import MANY
from tests.kits.stores import StoreServer, started
from tests.servers import azurite, s3_moto
from tests.servers.gcs_moto import GcsProxy

T = TypeVar("T")

STORE: Final = os.environ.get("TEST_STORE", "")
STEP: Final = int(os.environ.get("TEST_STEP", "7" if MANY else "41")) if STORE else 1
WHOLE: Final = STEP == 1
"""Whether every case is tried."""
_TURNS: Final = itertools.count()


def new_storage(**how: object) -> Storage:
    """An empty storage."""
    return _server().storage() if STORE else MemoryStorage(**how)  # type: ignore[arg-type]


def following(at: int) -> int:
    """The number of the case after `at`. The first is that after 0."""
    if STEP > 1 and at == 0:
        return 1 + next(_TURNS) * 7 % STEP
    return at + STEP


def some(cases: Iterable[T]) -> Sequence[T]:
    """The cases to try."""
    every = list(cases)
    return every[next(_TURNS) * 7 % min(STEP, len(every)) :: STEP] if STEP > 1 else every


def emptied(storage: Storage) -> None:
    """Removes all files."""
    if isinstance(storage, MemoryStorage):
        storage.clear()
    else:
        storage.delete_all([one.path for page in storage.list_below("") for one in page])


def refreshed() -> None:
    """Empties the store, between two tests."""
    if STORE and STORE != "azure":
        server = _server().server
        (server.moto if isinstance(server, GcsProxy) else server).reset()


@cache
def _server() -> StoreServer:
    """The server of this process. It ends with it."""
    if STORE == "azure":
        return StoreServer("azure", started(azurite.start))
    moto = started(s3_moto.start)
    return StoreServer("gcs", GcsProxy(moto).start()) if STORE == "gcs" else StoreServer("s3", moto)
