"""Tables whose files are real: they have the rows, sizes, keys and statistics of which their entries
tell. They are written by the package, read back by it and by pyarrow, and at the end of a torture
run a few of them go to Java as they are. With a primary key, compactions merge real rows, too, and
at the end the rows are merged once more, here and by hand.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from paimon_stream.format.entries import DataFileMeta
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import Table, load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import WriteSpec
from tests.kits.commits import FIELDS
from tests.kits.tables import batch_of, write_rows
from tests.simulation import rules
from tests.simulation.foreign import records_of
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.rewriting import Piece
    from tests.simulation.world import World

KIND: Final = "real files"
"""The name of append tables with them among those who take part."""
KEYED: Final = "real files with keys"
"""The name of tables with a primary key and fixed buckets."""

FIELDS_WITH_VALUE: Final = (*FIELDS, DataField(id=2, name="v", type=parse_type("BIGINT")))
"""The columns of a table with a primary key. Each file that a writer writes has a value of its own."""
SUMS: Final = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
"""With these options, the values of a key add up. Else the newest row of a key stays."""

APART: Final = 1000
"""The rows of a file have ids from this number times the file's on."""

SUFFIX: Final = ".parquet"
SEQUENCE, KIND_OF_ROW = "_SEQUENCE_NUMBER", "_VALUE_KIND"
"""The columns of a file with keys for the number and the kind of a row."""

Row = tuple[Any, ...]
"""The values of the columns that are compared."""


def written(
    world: World, table: Table, name: str, dt: str, rows: int, *, first: int
) -> tuple[bytes, DataFileMeta]:
    """A new file with so many rows of a partition, and its entry. With a primary key, these have
    the sequence numbers from `first` on. The world remembers the rows.
    """
    beginning = APART * world.files
    if world.changing:
        new = world.stored_rows[name] = new_rows(world, dt, rows)
        some = [tuple(zip(("id", "dt", "v", "s"), row, strict=True)) for row in new]
    elif world.keyed:
        keys = sorted({world.source.randrange(6) for _ in range(rows)})
        world.rows[name] = [(key, dt) for key in keys]
        world.values[name] = dict.fromkeys(keys, beginning)
        some = [(("id", key), ("dt", dt), ("v", beginning)) for key in keys]
    else:
        world.rows[name] = [(beginning + one, dt) for one in range(rows)]
        some = [(("id", id_), ("dt", dt)) for id_, dt in world.rows[name]]
    content, file = _written(_Kind(table), tuple(some), first)
    return content, replace(file, file_name=name)


def new_rows(world: World, dt: str, rows: int) -> list[tuple[int, str, int, int]]:
    """The rows of a new file of a table whose rows are changed. No two files of writers have rows with
    the same `s`: which of two rows with equal values wins is left to the order of their numbers.
    """
    beginning = APART * world.files
    if not world.keyed:
        return [(beginning + one, dt, one, 0) for one in range(rows)]
    keys = sorted({world.source.randrange(6) for _ in range(rows)})
    return [(key, dt, beginning, APART * world.source.randrange(4) + world.files) for key in keys]


class _Kind:
    """A table as far as the files depend on it that are written to it. Tables of many schedules are
    equal.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        schema = table.schema
        names = schema.partition_keys, schema.primary_keys
        others = ("manifest.", "snapshot.")  # what these say is of no file with rows
        options = [one for one in table.options.items() if not one[0].startswith(others)]
        self._key = schema.id, schema.fields, names, tuple(options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(4096)
def _written(
    kind: _Kind, rows: tuple[tuple[tuple[str, Any], ...], ...], first: int
) -> tuple[bytes, DataFileMeta]:
    """A file with these rows, each of which has its values by their columns, and its entry. With a
    primary key, these have the sequence numbers from `first` on. The same rows are written once:
    that takes a hundred times as long as the other work of an operation.
    """
    table, aside = kind.table, MemoryStorage()
    some = [dict(row) for row in rows]
    if table.schema.primary_keys:
        spec = WriteSpec(storage=aside, schema=table.schema, options=table.options)
        batch = batch_of(table.schema, some)
        (message,) = write_keyed_task(spec, [batch], first_sequence=first).messages
    else:
        (message,) = write_rows(replace(table, storage=aside), some)
    (file,) = message.new_files
    path = table.layout.data_file(message.partition, message.bucket, file.file_name)
    return aside.read(path), file


def forget_files() -> None:
    """Files are written anew from now on."""
    _written.cache_clear()


def columns_of(world: World) -> tuple[str, ...]:
    """The columns that are compared."""
    if world.changing:
        return ("id", "dt", "v", "s")
    return ("id", "dt", "v") if world.keyed else ("id", "dt")


def rows_of(world: World, state: State) -> list[Row]:
    """The rows of a snapshot, by the commits that are in it, in their order."""
    if not world.keyed:
        return sorted(row for name in state.written for row in world.rows[name])
    rows: dict[Row, Row] = {}
    for name in state.order:
        some = [(key, dt, world.values[name][key]) for key, dt in world.rows[name]]
        _merge_into(rows, some, world)
    return sorted(rows.values())


def _merge_into(merged: dict[Row, Row], rows: Iterable[Row], world: World) -> None:
    """Each row takes the place of the one with its key, and its value is added where they add up."""
    for id_, dt, value in rows:
        key = (id_, dt) if world.partitioned else (id_,)
        before = merged[key][2] if world.sums and key in merged else 0
        merged[key] = id_, dt, before + value


def merged_by_hand(world: World, state: State) -> list[Row]:
    """The rows of a snapshot with a primary key by pyarrow: those of all live files in the order of
    their sequence numbers, merged here.
    """
    stored: list[tuple[int, Row]] = []
    for name, entry in state.live.items():
        path = world.table.layout.data_file(entry.partition, entry.bucket, name)
        names = [SEQUENCE, KIND_OF_ROW, *columns_of(world)]
        for one in stored_columns(world.disk.read(path), names).to_pylist():
            assert one[KIND_OF_ROW] == 0, f"{path} has a row that deletes"
            stored.append((one[SEQUENCE], (one["id"], one["dt"], one["v"])))
    merged: dict[Row, Row] = {}
    _merge_into(merged, (row for _, row in sorted(stored)), world)
    return sorted(merged.values())


def stored_columns(content: bytes, columns: list[str]) -> pa.Table:
    """These columns of a Parquet file. It has a few rows, so threads would take most of the time."""
    return pq.ParquetFile(pa.BufferReader(content)).read(columns=columns, use_threads=False)


def check_rewritten(world: World, path: str, pieces: Iterable[Piece]) -> None:
    """A compacted file has the rows that its pieces come to."""
    if path not in world.truth.paths:
        return  # somebody has removed it already
    expected: Counter[int] = Counter()
    for piece in pieces:
        expected.update(piece.values)  # without sums, no two pieces have one key
    read = stored_columns(world.disk.read(path), ["id", "v"]).to_pylist()
    values = {one["id"]: one["v"] for one in read}
    if len(read) != len(values) or values != expected:
        what = f"{path} has the rows {read}, and not {dict(expected)}"
        world.verdict = Violation(rules.COMPACTED, what)
        raise world.verdict


def check_rows(world: World) -> None:
    """The newest snapshot has the rows that were written, for this package as for pyarrow, and each
    file is as its entry says.
    """
    head = world.truth.head
    if head is None or head.files - world.truth.paths or world.truth.there.get(head.id) is not head:
        return
    expected, columns = rows_of(world, head), columns_of(world)
    scan = plan_scan(load_table(world.disk))
    read = sorted(
        tuple(one[column] for column in columns)
        for batch in read_batches(scan)
        for one in batch.to_pylist()
    )
    if scan.snapshot is None or scan.snapshot.nonce != head.nonce or read != expected:
        raise Violation(rules.READERS, f"snapshot {head.id} reads as {read}, not {expected}")
    if world.keyed and merged_by_hand(world, head) != expected:
        what = f"the files of snapshot {head.id} come to {merged_by_hand(world, head)}"
        raise Violation(rules.READERS, f"{what}, not {expected}")
    files = world.truth.archive.files
    for which in (head.snapshot.base_manifest_list, head.snapshot.delta_manifest_list):
        for record in records_of(files[which]):
            for entry in records_of(files[record["_FILE_NAME"]]):
                if entry["_FILE"]["_FILE_NAME"] in head.live:
                    _check_file(world, entry["_FILE"])


def _check_file(world: World, file: Mapping[str, Any]) -> None:
    name = file["_FILE_NAME"]
    entry = world.truth.head.live[name]  # type: ignore[union-attr]
    path = world.table.layout.data_file(entry.partition, entry.bucket, name)
    content = world.disk.read(path)
    ids = stored_columns(content, ["id"])["id"].to_pylist()
    if ids != _ids_of(world, name):
        raise Violation(rules.READERS, f"{path} has the ids {ids}")
    said = file["_FILE_SIZE"], file["_ROW_COUNT"]
    if said != (len(content), len(ids)):
        raise Violation(rules.SIZES, f"{path} has other bytes and rows than {said}")
    stats = file["_VALUE_STATS"]
    bounds = [_first_number(stats[key]) for key in ("_MIN_VALUES", "_MAX_VALUES")]
    if bounds != [min(ids), max(ids)] or stats["_NULL_COUNTS"][0] != 0:
        raise Violation(rules.STATISTICS, f"{path} has ids {ids}, not within {bounds}")


def _ids_of(world: World, name: str) -> list[int]:
    """The ids in a file. Those that were compacted into one are sorted."""
    pieces = world.truth.archive.pieces.get(name)
    if pieces is None:
        return [id_ for id_, _ in world.rows[name]]
    return sorted({key for piece in pieces for key in piece.values})


def _first_number(row: bytes) -> int:
    """The first column of a serialized row, a number of 64 bits: it follows the arity and the null
    bits, which are eight for the row's kind and one for each column, in words of 64 bits.
    """
    (arity,) = struct.unpack(">i", row[:4])
    (number,) = struct.unpack_from("<q", row, 4 + (8 + arity + 63) // 64 * 8)
    return int(number)


def stored(world: World, folder: Path) -> tuple[list[Row], int] | None:
    """Writes the table's folder to the disk as it is. Returns its rows and how many its files have,
    None if it has none that can be read whole.
    """
    head = world.truth.head
    if head is None or head.files - world.truth.paths or world.truth.there.get(head.id) is not head:
        return None
    for path in world.all_paths():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(world.disk.read(path))
    if world.changing:
        rows: list[Any] = [] if head.rows is None else sorted(head.rows.rows.values())
    else:
        rows = rows_of(world, head)
    return rows, sum(one.file.row_count for one in head.live.values())


def counted(folder: Path) -> int:
    """The rows in the files of the newest snapshot by its JSON and by fastavro."""
    snapshots = sorted(
        (int(one.name.rpartition("-")[2]), one) for one in (folder / "snapshot").glob("snapshot-*")
    )
    node = json.loads(snapshots[-1][1].read_bytes())
    rows = 0
    for which in ("baseManifestList", "deltaManifestList"):
        for record in records_of((folder / "manifest" / node[which]).read_bytes()):
            for entry in records_of((folder / "manifest" / record["_FILE_NAME"]).read_bytes()):
                sign = -1 if entry["_KIND"] else 1
                rows += sign * entry["_FILE"]["_ROW_COUNT"]
    assert rows == node["totalRecordCount"], folder
    return rows
