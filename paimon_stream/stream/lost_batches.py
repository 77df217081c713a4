"""Batches that may have been lost, as the journals of streams or the delta list of a snapshot
describe them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paimon_stream._version import __version__
from paimon_stream.commit.lost_facts import lost_entries
from paimon_stream.errors import NotFound, PaimonStreamError, TableReplaced, UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import CHANGELOG_PRODUCER, DATA_EVOLUTION, DELETION_VECTORS
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
    """A batch as it was committed.

    Attributes:
        user: the commit user of the batch.
        batch: the id of the batch.
        base: the snapshot on which the batch was made; None for the empty table.
        messages: the commit messages with its files.
        properties: the properties of its snapshot.
        uuid: the part that the names of its manifest lists share.
        nonce: the nonce of its snapshot; empty if it is not known.
        place: the id of its snapshot, if it is known.
        run_id: the run that prepared it, if it is known.
        journalled: whether a journal names its files.
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
    journalled: bool = True

    @property
    def files(self) -> list[DataFileMeta]:
        """The files that the batch added."""
        return [file for message in self.messages for file in message.new_files]


def journalled(storage: Storage, user: str | None, batch: int | None) -> Iterator[LostBatch]:
    """The batches in the journals, ascending for each user.

    Args:
        storage: the storage of the table.
        user: the user whose journal is read. None: the journals of all users are read, and only
            batches that can be committed again are returned.
        batch: the id of the only batch that is returned. None: all batches are.

    Raises:
        TableReplaced: a batch of that user was prepared for another table.
        UnsupportedFeature: a batch of that user cannot be committed again.
        CorruptMetadata: a journal or register does not parse.
        StorageError: the storage failed.
    """
    digest = SchemaStore(storage).first_digest()
    owners = [user] if user is not None else _registered_users(storage)
    for owner in owners:
        journal = Journal(storage, owner)
        batches = [batch] if batch is not None else journal.batches()
        for batch_id in batches:
            entry = journal.read(batch_id)
            if entry is None:
                continue
            error = _error_of_entry(storage, owner, entry, digest)
            if error is None:
                yield _batch_of_entry(owner, entry)
            elif user is not None:
                raise error


def _registered_users(storage: Storage) -> list[str]:
    return [register.user for register in registered_writers(storage)]


def _error_of_entry(
    storage: Storage, user: str, entry: JournalEntry, digest: str
) -> PaimonStreamError | None:
    """Why the batch of this entry cannot be committed again; None if it can be. `digest` is that of
    the table's first schema.
    """
    if entry.schema_digest != digest:
        return TableReplaced(
            f"batch {entry.batch_id} of user {user!r} was prepared for another table that was at this location. "
            "Nothing was published. Write its rows again.",
            user=user,
            batch=entry.batch_id,
        ).of_table(storage.location)
    if entry.overwrites:
        return not_to_be_repeated(storage, user, entry.batch_id, "it replaces what is in the table")
    if entry.merges:
        return not_to_be_repeated(
            storage, user, entry.batch_id, "it was merged into rows that the table had then"
        )
    return None


def _batch_of_entry(user: str, entry: JournalEntry) -> LostBatch:
    stream = WriterIdentity(
        user=user,
        query_id=entry.query_id,
        run_id=None,
        checkpoint=entry.checkpoint,
        query_name=entry.query_name,
        token="",
    )
    summary = BatchSummary.of_messages(entry.messages, millis=None, reused=True).properties()
    marks = stream.properties(entry.batch_id, entry.offsets_hash)
    return LostBatch(
        user=user,
        batch=entry.batch_id,
        base=entry.base,
        messages=entry.messages,
        properties=summary | marks,
        uuid=entry.stage_uuids[0],
        run_id=entry.run_id,
    )


def listed_batch(table: Table, user: str, batch: int, place: int, nonce: str) -> LostBatch:
    """A lost batch, as the delta list of its snapshot describes it.

    Args:
        table: the table that lost the batch.
        user: the commit user of the batch.
        batch: the id of the batch.
        place: the id of the lost snapshot.
        nonce: the name of the delta list.

    Raises:
        NotFound: the delta list, or a manifest that it names, cannot be read.
        UnsupportedFeature: the batch cannot be committed with these files again.
        StorageError: the storage failed.
    """
    storage = table.storage
    entries = lost_entries(ManifestStore(storage), nonce)
    if entries is None:
        raise NotFound(
            f"the delta list {nonce!r}, or a manifest that it names, cannot be read, so the files are not known. "
            "Nothing was published. Write the rows again.",
            batch=batch,
        ).of_table(storage.location)
    _check_list_is_enough(table, user, batch, entries)
    below = SnapshotStore(storage).find(place - 1)
    return LostBatch(
        user=user,
        batch=batch,
        base=SnapshotRef.of_optional(below),
        messages=_messages_of(entries),
        properties={VERSION_MARK: __version__},
        uuid=nonce.removeprefix(LIST_PREFIX).rpartition("-")[0],
        nonce=nonce,
        place=place,
        journalled=False,
    )


def _check_list_is_enough(
    table: Table, user: str, batch: int, entries: Iterable[ManifestEntry]
) -> None:
    """Raises `UnsupportedFeature` if the entries of a delta list are not all that the batch had."""
    storage = table.storage
    if any(entry.kind is FileKind.DELETE for entry in entries):
        raise not_to_be_repeated(storage, user, batch, "it replaced or compacted files")
    if table.options.value(CHANGELOG_PRODUCER) == "input":
        raise not_to_be_repeated(storage, user, batch, "its changelog is not in the delta list")
    if table.options.value(DELETION_VECTORS) and not table.schema.primary_keys:
        raise not_to_be_repeated(
            storage,
            user,
            batch,
            "it may have deleted rows, and the delta list has no deletion vectors",
        )
    if table.has_dynamic_buckets:
        raise not_to_be_repeated(storage, user, batch, "its hash index is not in the delta list")
    evolves = table.options.value(DATA_EVOLUTION)
    if evolves and any(entry.file.write_cols is not None for entry in entries):
        # With new row ids, the columns in these files would become separate rows.
        raise not_to_be_repeated(
            storage, user, batch, "its files may hold columns of rows that other files have"
        )


def _messages_of(entries: Iterable[ManifestEntry]) -> tuple[CommitMessage, ...]:
    """The messages that add the files of some manifest entries, one message for each bucket."""
    files_of_buckets = defaultdict(list)
    for entry in entries:
        bucket_key = (entry.partition, entry.bucket, entry.total_buckets)
        # The lost snapshot gave row ids to the rows of this file. The snapshot that replaced it has
        # given the same ids to other rows.
        files_of_buckets[bucket_key].append(replace(entry.file, first_row_id=None))
    return tuple(
        CommitMessage(
            partition=partition, bucket=bucket, total_buckets=total, new_files=tuple(files)
        )
        for (partition, bucket, total), files in files_of_buckets.items()
    )


def not_to_be_repeated(storage: Storage, user: str, batch: int, cause: str) -> UnsupportedFeature:
    """The error for a batch whose files cannot be committed again. `cause` is half a sentence."""
    return UnsupportedFeature(
        f"batch {batch} of user {user!r} cannot be committed again, because {cause}. "
        "Nothing was published. Run what made it again.",
        user=user,
        batch=batch,
    ).of_table(storage.location)
