"""Small changes that only real files and a reader of streams can show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from paimon_stream.maintenance import expire
from paimon_stream.read import rows
from paimon_stream.write import data_file
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.real_files import KIND


@bug(
    "Expiry does not know the consumers.",
    KIND,
    "expirer",
    "batch writer",
    rule=rules.READERS,
    why="A snapshot that a streaming reader has not read expires.",
)
def consumers_are_overlooked(patch: Patch) -> None:
    patch.setattr(expire, "consumers", lambda storage: {})


@bug(
    "A read leaves its first batch of rows out.",
    KIND,
    rule=rules.READERS,
    why="The newest snapshot has rows that are not read.",
)
def the_first_rows_are_not_read(patch: Patch) -> None:
    def read(*given: Any) -> Iterator[Any]:
        return islice(real(*given), 1, None)

    real = rows._all_rows
    patch.setattr(rows, "_all_rows", read)


def described(patch: Patch, **changed: Callable[[Any], Any]) -> None:
    """The entries of new files have other values."""
    real = data_file.DataFileMeta

    def meta(**given: Any) -> Any:
        return real(**{**given, **{name: how(given[name]) for name, how in changed.items()}})

    patch.setattr(data_file, "DataFileMeta", meta)


@bug(
    "The entry of a file gives it another size.",
    KIND,
    rule=rules.SIZES,
    why="The size is not that of the file.",
)
def an_entry_gives_another_size(patch: Patch) -> None:
    described(patch, file_size=lambda size: size + 1)


@bug(
    "The least values of a file's columns are its greatest.",
    KIND,
    rule=rules.STATISTICS,
    why="The file has lower values.",
)
def the_least_values_are_the_greatest(patch: Patch) -> None:
    described(patch, value_stats=lambda stats: stats._replace(min_values=stats.max_values))
