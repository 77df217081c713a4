"""Small changes that only real files and a reader of streams can show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.maintenance import expire
from paimon_stream.merge import rows as merging
from paimon_stream.merge.merge_order import flat
from paimon_stream.read import rows
from paimon_stream.write import data_file
from paimon_stream.write.key_value import KeyValueSettings
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.real_files import KEYED, KIND


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


@bug(
    "Of the rows of a key the oldest one stays.",
    KEYED,
    "batch writer",
    rule=rules.READERS,
    why="A later commit has written another value of the key.",
    seed=1,
)
def the_oldest_row_stays(patch: Patch) -> None:
    patch.setattr(merging, "_last_rows", lambda spec, runs, several: runs.starts)


@bug(
    "Values that are to add up are replaced by the newest one.",
    KEYED,
    "batch writer",
    rule=rules.READERS,
    why="The sum of a key lacks what earlier commits have added.",
)
def the_newest_value_stands_for_the_sum(patch: Patch) -> None:
    def aggregated(spec: Any, table: pa.Table, runs: Any) -> list[pa.Array]:
        newest = pa.array(runs.order[runs.ends - 1])
        return [flat(table.column(name)).take(newest) for name in table.column_names]

    patch.setattr(merging, "_aggregated", aggregated)


@bug(
    "A compaction leaves out the row with the least key.",
    KEYED,
    "batch writer",
    "compactor",
    rule=rules.COMPACTED,
    why="The new file has not all keys of those that it replaces.",
)
def a_compaction_leaves_a_row_out(patch: Patch) -> None:
    def batches(*given: Any, **more: Any) -> Iterator[Any]:
        for one in real(*given, **more):
            yield one.slice(1) if one.num_rows > 1 else one

    real = rows.section_batches
    patch.setattr(rows, "section_batches", batches)


@bug(
    "Values are stored one too high, and read one too low.",
    KEYED,
    "batch writer",
    rule=rules.READERS,
    why="This package reads what was written, and nobody else does.",
    seed=1,
)
def values_are_stored_one_too_high(patch: Patch) -> None:
    def moved(batch: Any, by: int) -> Any:
        at = batch.schema.get_field_index("v")
        return batch.set_column(at, "v", pc.add(batch.column(at), by))

    def stored(self: KeyValueSettings, given: Any) -> Any:
        return write(self, given if "v" not in given.column_names else moved(given, 1))

    def read(*given: Any) -> Iterator[Any]:
        return (moved(one, -1) for one in real(*given))

    write, real = KeyValueSettings.stored, rows._all_rows
    patch.setattr(KeyValueSettings, "stored", stored)
    patch.setattr(rows, "_all_rows", read)
