"""Where the tables of tests are: in memory, or in a store, with TEST_STORE=s3, azure, gcs or
hdfs.

A test that lets something happen at any operation tries one operation in TEST_STEP: one in four in
memory, all of them with TEST_SEEDS=many, and fewer on a store, where each takes seconds. Which ones
depends on the test alone, so a run that fails can be repeated.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits import hdfs
from tests.kits.hdfs import MiniHdfs
from tests.kits.seeds import MANY
from tests.kits.stores import StoreServer, started
from tests.servers import azurite, s3_moto
from tests.servers.gcs_moto import GcsProxy

T = TypeVar("T")

STORE: Final = os.environ.get("TEST_STORE", "")
STEP: Final = int(
    os.environ.get("TEST_STEP", ("7" if MANY else "41") if STORE else ("1" if MANY else "4"))
)
WHOLE: Final = STEP == 1
"""Whether every case is tried."""
_TURNS: Final[Counter[str]] = Counter()


def new_storage(**how: object) -> Storage:
    """An empty storage."""
    return server().storage() if STORE else MemoryStorage(**how)  # type: ignore[arg-type]


def following(at: int) -> int:
    """The number of the case after `at`. The first is that after 0."""
    return at + STEP if at else 1 + _turn(STEP)


def some(cases: Iterable[T]) -> Sequence[T]:
    """The cases to try: all of them in memory, where none takes long."""
    every = list(cases)
    return every[_turn(min(STEP, len(every))) :: STEP] if STORE else every


def _turn(step: int) -> int:
    """With which case of so many a test begins. Each time that it asks, with another one."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    _TURNS[test] += 1
    return (zlib.crc32(test.encode()) + 7 * _TURNS[test]) % step


def emptied(storage: Storage) -> None:
    """Removes all files."""
    if isinstance(storage, MemoryStorage):
        storage.clear()
    else:
        storage.delete_all([one.path for page in storage.list_below("") for one in page])


def refreshed() -> None:
    """Empties the store, between two tests."""
    if STORE in ("s3", "gcs"):
        moto = server().server
        (moto.moto if isinstance(moto, GcsProxy) else moto).reset()


@cache
def server() -> StoreServer | MiniHdfs:
    """The server of this process. It ends with it."""
    if STORE == "hdfs":
        return started(hdfs.start, "hdfs_native")
    if STORE == "azure":
        return StoreServer("azure", started(azurite.start))
    moto = started(s3_moto.start)
    return StoreServer("gcs", GcsProxy(moto).start()) if STORE == "gcs" else StoreServer("s3", moto)
