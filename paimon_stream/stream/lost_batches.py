"""The batches that may have been lost: from the journals of streams, or from the delta list of a
snapshot.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from paimon_stream._version import __version__
from paimon_stream.commit.lost_facts import lost_entries
from paimon_stream.errors import NotFound, PaimonStreamError, TableReplaced, UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import CHANGELOG_PRODUCER
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.register import registered_writers
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

LIST_PREFIX = "manifest-list-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBatch:
    """A batch as it was committed. Its manifest lists have `uuid` in their names. `nonce` is that
    of its snapshot, if it is known, and `place` its id. `run_id` is the run that prepared it, None
    if that is not known.
    """

    user: str
    batch: int
    base: SnapshotRef | None
    messages: tuple[CommitMessage, ...]
    properties: dict[str, str]
    uuid: str
    nonce: str = ""
    place: int | None = None
    run_id: str | None = None


def journalled(storage: Storage, user: str | None, batch: int | None) -> Iterator[LostBatch]:
    """The batches in the journals, ascending for each user. Those of all users are only those that
    can be committed again. Raises `TableReplaced`, `UnsupportedFeature`, `CorruptMetadata`,
    `StorageError`.
    """
    digest = SchemaStore(storage).first_digest()
    users = [user] if user is not None else [one.user for one in registered_writers(storage)]
    for one in users:
        journal = Journal(storage, one)
        for number in journal.batches() if batch is None else [batch]:
            entry = journal.read(number)
            if entry is None:
                continue
            why_not = _why_not(storage, one, entry, digest)
            if why_not is None:
                yield _of_entry(one, entry)
            elif user is not None:
                raise why_not


def _why_not(
    storage: Storage, user: str, entry: JournalEntry, digest: str
) -> PaimonStreamError | None:
    if entry.schema_digest != digest:
        text = (
            f"batch {entry.batch_id} of user {user!r} was prepared for another table that was at this location. "
            "Nothing was published. Write its rows again."
        )
        return TableReplaced(text, user=user, batch=entry.batch_id).of_table(storage.location)
    if entry.overwrites:
        return not_to_be_repeated(storage, user, entry.batch_id, "it replaces the whole table")
    return None


def _of_entry(user: str, one: JournalEntry) -> LostBatch:
    stream = WriterIdentity(
        user=user,
        query_id=one.query_id,
        run_id=None,
        checkpoint=one.checkpoint,
        query_name=one.query_name,
        token="",
    )
    summary = BatchSummary.of_messages(one.messages, millis=None, reused=True).properties()
    marks, batch, uuid = (
        stream.properties(one.batch_id, one.offsets_hash),
        one.batch_id,
        one.stage_uuids[0],
    )
    return LostBatch(
        user=user,
        batch=batch,
        base=one.base,
        messages=one.messages,
        properties=summary | marks,
        uuid=uuid,
        run_id=one.run_id,
    )


def listed_batch(table: Table, user: str, batch: int, place: int, nonce: str) -> LostBatch:
    """The batch of this delta list and snapshot id. Raises `NotFound`, `UnsupportedFeature`,
    `StorageError`.
    """
    storage = table.storage
    entries = lost_entries(ManifestStore(storage), nonce)
    if entries is None:
        raise NotFound(
            f"the delta list {nonce!r}, or a manifest that it names, cannot be read, so the files are not known. "
            "Nothing was published. Write the rows again.",
            batch=batch,
        ).of_table(storage.location)
    if any(one.kind is FileKind.DELETE for one in entries):
        raise not_to_be_repeated(storage, user, batch, "it replaced or compacted files")
    if table.options.value(CHANGELOG_PRODUCER) == "input":
        raise not_to_be_repeated(storage, user, batch, "its changelog is not in the delta list")
    if table.has_dynamic_buckets:
        raise not_to_be_repeated(storage, user, batch, "its hash index is not in the delta list")
    files = defaultdict(list)
    for one in entries:
        files[one.partition, one.bucket, one.total_buckets].append(one.file)
    below = SnapshotStore(storage).find(place - 1)
    return LostBatch(
        user=user,
        batch=batch,
        base=None if below is None else SnapshotRef.of(below),
        messages=tuple(
            CommitMessage(partition=part, bucket=bucket, total_buckets=total, new_files=tuple(some))
            for (part, bucket, total), some in files.items()
        ),
        properties={VERSION_MARK: __version__},
        uuid=nonce.removeprefix(LIST_PREFIX).rpartition("-")[0],
        nonce=nonce,
        place=place,
    )


def not_to_be_repeated(storage: Storage, user: str, batch: int, why: str) -> UnsupportedFeature:
    """The error for a batch that cannot be committed with its files again."""
    cure = "Run what made it again."
    text = f"batch {batch} of user {user!r} cannot be committed again, because {why}. Nothing was published. {cure}"
    return UnsupportedFeature(text, user=user, batch=batch).of_table(storage.location)
