"""Append tables whose files are real: they have the rows, sizes and statistics of which their
entries tell. They are written by the package, read back by it and by pyarrow, and at the end of a
torture run a few of them go to Java as they are.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from paimon_stream.format.entries import DataFileMeta
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import Table, load_table
from tests.kits.tables import write_rows
from tests.simulation import rules
from tests.simulation.foreign import records_of
from tests.simulation.state import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

KIND: Final = "real files"
"""Its name among those who take part."""

APART: Final = 1000
"""The rows of a file have ids from this number times the file's on."""

SUFFIX: Final = ".parquet"


def written(
    world: World, table: Table, name: str, dt: str, rows: int
) -> tuple[bytes, DataFileMeta]:
    """A new file with so many rows of a partition, and its entry. The world remembers the rows."""
    world.rows[name] = [(APART * world.files + one, dt) for one in range(rows)]
    aside = MemoryStorage(clock=world)  # type: ignore[arg-type]
    some = [{"id": id_, "dt": dt} for id_, dt in world.rows[name]]
    (message,) = write_rows(replace(table, storage=aside), some)
    (file,) = message.new_files
    path = table.layout.data_file(message.partition, message.bucket, file.file_name)
    return aside.read(path), replace(file, file_name=name)


def check_rows(world: World) -> None:
    """The newest snapshot has the rows that were written, for this package as for pyarrow, and each
    file is as its entry says.
    """
    head = world.truth.head
    if head is None or head.files - world.truth.paths or world.truth.there.get(head.id) is not head:
        return
    expected = sorted(row for name in head.written for row in world.rows[name])
    scan = plan_scan(load_table(world.disk))
    read = [(one["id"], one["dt"]) for batch in read_batches(scan) for one in batch.to_pylist()]
    if scan.snapshot is None or scan.snapshot.nonce != head.nonce or sorted(read) != expected:
        raise Violation(rules.READERS, f"snapshot {head.id} reads as {sorted(read)}")
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
    ids = pq.read_table(io.BytesIO(content), columns=["id"])["id"].to_pylist()
    if ids != [id_ for id_, _ in world.rows[name]]:
        raise Violation(rules.READERS, f"{path} has the ids {ids}")
    said = file["_FILE_SIZE"], file["_ROW_COUNT"]
    if said != (len(content), len(ids)):
        raise Violation(rules.SIZES, f"{path} has other bytes and rows than {said}")
    stats = file["_VALUE_STATS"]
    bounds = [_first_number(stats[key]) for key in ("_MIN_VALUES", "_MAX_VALUES")]
    if bounds != [min(ids), max(ids)] or stats["_NULL_COUNTS"][0] != 0:
        raise Violation(rules.STATISTICS, f"{path} has ids {ids}, not within {bounds}")


def _first_number(row: bytes) -> int:
    """The first column of a serialized row, a number of 64 bits: it follows the arity and the null
    bits, which are eight for the row's kind and one for each column, in words of 64 bits.
    """
    (arity,) = struct.unpack(">i", row[:4])
    (number,) = struct.unpack_from("<q", row, 4 + (8 + arity + 63) // 64 * 8)
    return int(number)


def stored(world: World, folder: Path) -> list[tuple[int, str]] | None:
    """Writes the table's folder to the disk as it is. Returns its rows, None if it has none that
    can be read whole.
    """
    head = world.truth.head
    if head is None or head.files - world.truth.paths or world.truth.there.get(head.id) is not head:
        return None
    for path in world.all_paths():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(world.disk.read(path))
    return sorted(row for name in head.written for row in world.rows[name])


def counted(folder: Path) -> int:
    """The rows of the newest snapshot by its JSON and by fastavro."""
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
