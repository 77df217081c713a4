"""What the tests of postponed tables share: writes rows of any kind, and shows the files of bucket
-2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.merge.spec import KIND
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import WriteSpec
from tests.kits.reading import batch_of

COLUMNS = [("dt", "STRING NOT NULL"), ("id", "INT NOT NULL"), ("v", "STRING")]
KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


def postponed(path: Path | str, **options: str) -> PaimonTable:
    """A new table whose rows wait."""
    given = {"bucket": "-2", **{key.replace("__", "."): value for key, value in options.items()}}
    made = PaimonTable.create(
        str(path), COLUMNS, partition_keys=["dt"], primary_keys=["dt", "id"], options=given
    )
    assert made is not None
    return made


def write(
    path: Path | str,
    rows: Sequence[Sequence[Any]],
    kinds: Sequence[str] | None = None,
    *,
    user: str = "ours",
    identifier: int = 1,
    runtime: Runtime | None = None,
) -> None:
    """Writes and commits the rows as a stream does."""
    table, runtime = load_table(LocalStorage(str(path))), runtime or system()
    codes = pa.array(np.array([KINDS[one] for one in kinds or ["+I"] * len(rows)], np.int8))
    spec = WriteSpec(
        storage=table.storage,
        schema=table.schema,
        options=table.options,
        user=user,
        runtime=runtime,
    )
    batch = batch_of(table.schema, rows).append_column(KIND, codes)
    messages = write_keyed_task(spec, [batch], first_sequence=0).messages
    TableCommit(table, user, runtime=runtime).commit(identifier, messages)


def files(path: Path | str) -> list[ManifestEntry]:
    """The live files, also those that wait."""
    table = load_table(LocalStorage(str(path)))
    snapshot, manifests = SnapshotStore(table.storage).latest(), ManifestStore(table.storage)
    if snapshot is None:
        return []
    types = table.partition_types
    return live_files(manifests, manifests.base_and_delta(snapshot), types, PartitionFilter(types))


def waiting(path: Path | str) -> list[ManifestEntry]:
    """The files of bucket -2, in the order in which a compaction takes them."""
    return sorted(
        (one for one in files(path) if one.bucket == -2),
        key=lambda one: one.file.creation_time or 0,
    )


def found(path: Path | str) -> list[tuple[Any, ...]]:
    """The rows that readers see, sorted."""
    return sorted(tuple(row.values()) for row in PaimonTable.load(str(path)).to_arrow().to_pylist())
