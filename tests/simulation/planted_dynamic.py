"""Small changes to the writing of tables with dynamic buckets that the simulation must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.commit.sequence import Sequences
from paimon_stream.maintenance.expire_run import Cleaner
from paimon_stream.stream import publishing
from paimon_stream.table.references import References
from paimon_stream.write.dynamic_buckets import Assigner
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.dynamic import KIND


@bug(
    "Nobody compares the hash index when a snapshot is put.",
    KIND,
    "stream b",
    "batch writer",
    rule=rules.INDEX_COMPLETE,
    why="The later of two index files of a bucket replaces the other, and lacks its hashes.",
    seed=1,
)
def indexes_are_not_compared(patch: Patch) -> None:
    patch.setattr(Sequences, "_check_index", lambda *given: None)


@bug(
    "A batch gets its buckets without the index that the table has.",
    KIND,
    rule=rules.INDEX_COMPLETE,
    why="A new index file replaces that of the bucket, and has only the hashes of this batch.",
)
def the_index_is_not_read(patch: Patch) -> None:
    real = Sequences.next
    patch.setattr(Sequences, "next", lambda *given, **how: replace(real(*given, **how), index=None))


@bug(
    "Journalled files are taken again although the index has changed since.",
    KIND,
    "stream b",
    "batch writer",
    "overwriter",
    rule=rules.INDEX_COMPLETE,
    why="Its index files replace those that others have put there since, and lack their hashes.",
    seed=104,
)
def prepared_files_keep_their_buckets(patch: Patch) -> None:
    def request(**named: Any) -> Any:
        return real(**{**named, "numbering": None} if named.get("checked") else named)

    real = publishing.CommitRequest
    patch.setattr(publishing, "CommitRequest", request)


@bug(
    "The next index file of a bucket has only its new hashes.",
    KIND,
    rule=rules.INDEX_COMPLETE,
    why="The next index file replaces the old one.",
)
def older_hashes_are_left_out(patch: Patch) -> None:
    real = Assigner.write

    def write(self: Assigner, partition: bytes, bucket: int) -> Any:
        self._partition(partition).files.pop(bucket, None)
        return real(self, partition, bucket)

    patch.setattr(Assigner, "write", write)


@bug(
    "An overwrite keeps the index entries of the partitions that it replaces.",
    KIND,
    "overwriter",
    rule=rules.INDEX_CURRENT,
    why="The buckets have no files any more.",
    seed=1,
)
def index_entries_stay(patch: Patch) -> None:
    patch.setattr(OverwriteSource, "_indexes", lambda *given: [])


@bug(
    "Only the partitions that get new keys are compared.",
    KIND,
    "stream b",
    "overwriter",
    rule=rules.INDEX_COMPLETE,
    why="An overwrite took the index file of a bucket, and a batch of known keys adds files there.",
    seed=114,
)
def known_keys_are_not_compared(patch: Patch) -> None:
    real = Sequences._check_index
    patch.setattr(
        Sequences,
        "_check_index",
        lambda self, numbering, changes, base: (
            real(self, numbering, changes, base) if changes.index else None
        ),
    )


@bug(
    "Expiry removes index files that later snapshots have, too.",
    KIND,
    "expirer",
    rule=rules.WHOLE,
    why="Later snapshots refer to them.",
)
def index_files_go_with_their_snapshot(patch: Patch) -> None:
    real = Cleaner._index_files
    patch.setattr(Cleaner, "_index_files", lambda self, name, kept: real(self, name, frozenset()))


@bug(
    "Removal of orphans does not know what an index manifest lists.",
    KIND,
    "orphan cleaner",
    rule=rules.WHOLE,
    why="Snapshots refer to them.",
)
def index_files_are_orphans(patch: Patch) -> None:
    def read(self: References, snapshot: Any, **how: Any) -> None:
        self._add(snapshot.index_manifest)
        real(self, replace(snapshot, index_manifest=None), **how)

    real = References._read_snapshot
    patch.setattr(References, "_read_snapshot", read)
