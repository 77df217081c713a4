"""Tables with dynamic buckets: how their rows are written, and what must hold of their hash index.

The keys get their buckets from the real `Assigner`, which reads and writes real index files. Only
the data files hold no rows, as everywhere in the simulation. A batch has a file in each bucket that
its keys are in. The files of one attempt to write it are named `<user>-<batch>-<attempt>.<bucket>`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW, HASH, DataFileMeta
from paimon_stream.table.table import Table
from paimon_stream.write.dynamic_buckets import Assigner
from paimon_stream.write.routing import key_hashes
from tests.kits.commits import FIELDS, data_file
from tests.simulation import rules
from tests.simulation.rewriting import pieces_of
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.actors.base import Actor
    from tests.simulation.world import World

KIND = "dynamic buckets"
"""Its name among those who take part."""

OPTIONS = {"bucket": "-1", "dynamic-bucket.target-row-num": "4", "write-only": "true"}
KEYS = (16, 400)
"""A batch draws its keys from the few, which are soon all known, or from the many, of which most
are new.
"""

ONE = rules.ONE_BUCKET
COMPLETE = rules.INDEX_COMPLETE
CURRENT = rules.INDEX_CURRENT


def hashes_of(keys: list[int]) -> list[int]:
    """The hash of each key."""
    return [_hash_of(key) for key in keys]


@lru_cache(None)
def _hash_of(key: int) -> int:
    columns = pa.record_batch([pa.array([key], pa.int64())], names=[FIELDS[0].name])
    (found,) = key_hashes(columns, [FIELDS[0].type]).tolist()
    return int(found)


def written(
    actor: Actor,
    table: Table,
    user: str,
    batch: int | None,
    *,
    dt: str,
    first: int,
    rows: int,
    index: str | None,
) -> tuple[CommitMessage, ...]:
    """Writes a batch: its keys get buckets by that index, then come the data files, and the index
    files.
    """
    world, storage = actor.world, actor.ready().storage
    partition = serialize([FIELDS[1].type], [dt]) if table.schema.partition_keys else EMPTY_ROW
    tasks = 1 + world.source.randrange(2)
    most = world.source.choice(KEYS)
    keys = sorted({world.source.randrange(most) for _ in range(rows)})
    value = world.source.randrange(1000)
    given = storage, table.layout, table.options
    assigner = Assigner(*given, index=index, tasks=tasks, uuid=world.ids.uuid())  # type: ignore[arg-type]
    placed: dict[int, list[int]] = {}
    buckets = assigner.assign(partition, np.array(hashes_of(keys), np.int32)).tolist()
    for key, bucket in zip(keys, buckets, strict=True):
        placed.setdefault(bucket, []).append(key)
    world.files += 1
    attempt = f"{user}-{'x' if batch is None else batch}-{world.files}"
    names = world.truth.parts[attempt] = {bucket: f"{attempt}.{bucket}" for bucket in placed}
    files: dict[int, DataFileMeta] = {}
    for bucket, some in placed.items():
        name = names[bucket]
        storage.write(table.layout.data_file(partition, bucket, name), b"rows")
        world.values[name] = dict.fromkeys(some, value)
        low, high = (serialize([FIELDS[0].type], [one]) for one in (some[0], some[-1]))
        file = data_file(name, len(some), first)
        if actor.world.partitions_expire:
            file = replace(file, creation_time=actor.world.millis)
        files[bucket] = replace(file, min_key=low, max_key=high, schema_id=table.schema.id)
        first += len(some)
    return tuple(
        CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=-1,
            new_files=(file,),
            new_index_files=assigner.write(partition, bucket),
        )
        for bucket, file in files.items()
    )


# -- what must hold
# -------------------------------------------------------------------------------------


def check_index(world: World, state: State) -> None:
    """The rules D1 to D5 of every snapshot of the line (table-kinds.md §1.2). No row is deleted
    here, so a bucket without live files has no entry. A batch is there with the files of all its
    buckets.
    """
    held = _held(world, state)
    known: dict[tuple[bytes, int], int] = {}
    for (partition, bucket), hashes in held.items():
        for one in hashes:
            other = known.setdefault((partition, one), bucket)
            if other != bucket:
                raise Violation(
                    ONE,
                    f"snapshot {state.id} has a hash in the indexes of buckets {other} and {bucket}",
                )
    places: dict[tuple[bytes, int], int] = {}
    live: set[tuple[bytes, int]] = set()
    for entry in state.live.values():
        where, name = (entry.partition, entry.bucket), entry.file.file_name
        live.add(where)
        if entry.total_buckets != -1:
            raise Violation(
                CURRENT, f"{name} in snapshot {state.id} is for {entry.total_buckets} buckets"
            )
        keys = sorted(key for piece in pieces_of(world, entry) for key in piece.values)
        if where not in held:
            raise Violation(
                COMPLETE,
                f"snapshot {state.id} has no index entry for bucket {entry.bucket} of {name}",
            )
        lost = [
            key for key, one in zip(keys, hashes_of(keys), strict=True) if one not in held[where]
        ]
        if lost:
            raise Violation(
                COMPLETE, f"snapshot {state.id} lacks keys {lost} of {name} in its index"
            )
        for key in keys:
            other = places.setdefault((entry.partition, key), entry.bucket)
            if other != entry.bucket:
                raise Violation(
                    ONE, f"snapshot {state.id} has key {key} in buckets {other} and {entry.bucket}"
                )
    if held.keys() - live:
        buckets = sorted(bucket for _, bucket in held.keys() - live)
        raise Violation(
            CURRENT,
            f"snapshot {state.id} has index entries of buckets {buckets}, and no files there",
        )
    _check_parts(world, state)


def _held(world: World, state: State) -> dict[tuple[bytes, int], set[int]]:
    """The hashes in each bucket's index file."""
    found: dict[tuple[bytes, int], set[int]] = {}
    for entry in state.index:
        where, file = (entry.partition, entry.bucket), entry.file
        if file.index_type != HASH or where in found:
            raise Violation(
                CURRENT, f"snapshot {state.id} has another {file.index_type} entry of {where}"
            )
        if file.file_name not in world.truth.archive.indexes:
            raise Violation(rules.WHOLE, f"snapshot {state.id} names {file.file_name}")
        content = world.truth.archive.indexes[file.file_name]
        found[where] = set(np.frombuffer(content, ">i4").tolist())
        if not file.file_size == len(content) == 4 * file.row_count == 4 * len(found[where]):
            raise Violation(
                CURRENT, f"{file.file_name} of snapshot {state.id} does not fit its entry"
            )
    return found


def _check_parts(world: World, state: State) -> None:
    """A batch lies in one partition, so an overwrite takes all its files or none."""
    there = set(state.written)
    for attempt in dict.fromkeys(_attempts(state)):
        missing = set(world.truth.parts[attempt].values()) - there
        if missing:
            raise Violation(rules.WHOLE_BATCH, f"snapshot {state.id} lacks {sorted(missing)}")


def _attempts(state: State) -> Iterator[str]:
    return (name.rpartition(".")[0] for name in state.written)
