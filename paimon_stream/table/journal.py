"""The journal records what a run had prepared when it began to commit (exactly-once.md §4). Each
batch has one small file beside the table, `_paimon_stream/<commit user>/<batch id>`: checksummed
JSON, written atomically. The files of the last two batches stay.

Invariants: an entry is durable before the snapshot of its batch is put. It names all data files of
the attempt and, by their uuids, all metadata that the attempt may stage. So after a kill the entry
says which files wait to be committed, and which staged metadata is dead. Exactly once does not
depend on the journal: without it, the files of a killed run are not reused, and the batch is
written again.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from paimon_stream.errors import FormatError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.json_text import (
    RecordField,
    encode_checksummed,
    integer,
    optional_text,
    reading_checksummed,
    values_of_json,
    values_to_json,
)
from paimon_stream.format.names import checked_name
from paimon_stream.format.snapshot_json import SnapshotRef, json_key
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import id_in_name, user_folder

_KIND: Final = "journal"
_CURE: Final = (
    "Move it away, and the file 'writer' beside it, which vouches for the journal; the batch is then judged "
    "by the table's snapshots alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What one attempt at one batch has prepared. Times are epoch milliseconds.

    Attributes:
        batch_id: the id of the batch.
        messages: the commit messages of the files that the tasks have written.
        stage_uuids: the uuid of this attempt first, then those of earlier attempts at the batch.
            The names of the metadata that an attempt may have written contain its uuid.
        abandoned: the paths of the data files of earlier attempts that this attempt does not use.
        query_id: the id of the query; None if it has none.
        run_id: the id of the query's run; None if it has none.
        checkpoint: the location of the checkpoint; None if it is not known.
        query_name: the name of the query; None if it has none.
        offsets_hash: a hash of the offsets of the batch; None if they are not known.
        schema_digest: the digest of the table's first schema.
        schema_id: the schema with which the files were written.
        total_buckets: the bucket count with which the files were written.
        base: up to this snapshot, the judgement of the batch knew who had published what; None for
            the empty table.
        newest: the latest snapshot at the judgement; None if that is `base`, and in entries of
            older releases.
        previous: the last batch that this stream had published before; None without any.
        prepared_millis: when the data files were prepared.
        reused_millis: when an attempt took over the data files of an earlier attempt; None for
            other attempts, and in entries of older releases.
        overwrites: whether the batch replaces what is in the table.
        merges: whether the batch was merged into the rows of the table. Its files then fit only the
            rows from which they were computed, and are never committed later. False in entries of
            older releases.
    """

    batch_id: int
    messages: tuple[CommitMessage, ...]
    stage_uuids: tuple[str, ...]
    abandoned: tuple[str, ...] = ()
    query_id: str | None
    run_id: str | None
    checkpoint: str | None
    query_name: str | None
    offsets_hash: str | None
    schema_digest: str
    schema_id: int
    total_buckets: int
    base: SnapshotRef | None
    newest: SnapshotRef | None = None
    previous: "PreviousBatch | None"
    prepared_millis: int
    reused_millis: int | None = None
    overwrites: bool = False
    merges: bool = False

    @property
    def attempted_millis(self) -> int:
        """The time at which this attempt was made."""
        return self.prepared_millis if self.reused_millis is None else self.reused_millis


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousBatch:
    """An earlier batch, and the snapshot that has it.

    Attributes:
        batch_id: the id of the batch.
        snapshot: the snapshot of the batch.
    """

    batch_id: int
    snapshot: SnapshotRef


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("batch_id", "schema_id", "total_buckets", "prepared_millis"), integer),
    **dict.fromkeys(
        ("query_id", "run_id", "checkpoint", "query_name", "offsets_hash"), optional_text
    ),
    "schema_digest": str,
}
_FIELDS: Final = [RecordField(name, json_key(name), read) for name, read in _READERS.items()]


def encode_journal_entry(entry: JournalEntry) -> bytes:
    """The content of the entry's file. Raises `InvalidData` for messages that cannot be encoded."""
    serialized = [CommitMessage.serialize(message) for message in entry.messages]
    body: dict[str, Any] = {
        **values_to_json(entry, _FIELDS),
        "messageVersion": CommitMessage.VERSION,
        "messages": [base64.b64encode(message).decode() for message in serialized],
        "stageUuids": list(entry.stage_uuids),
        "abandoned": list(entry.abandoned),
        "base": None,
        "previous": None,
        "overwrites": entry.overwrites,
    }
    if entry.base is not None:
        body["base"] = entry.base.node()
    if entry.previous is not None:
        body["previous"] = {
            "batchId": entry.previous.batch_id,
            "snapshot": entry.previous.snapshot.node(),
        }
    if entry.newest is not None:
        body["newest"] = entry.newest.node()
    if entry.reused_millis is not None:
        body["reusedMillis"] = entry.reused_millis
    if entry.merges:
        body["merges"] = True
    return encode_checksummed(_KIND, body)


def decode_journal_entry(data: bytes, path: str) -> JournalEntry:
    """The entry in a file; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    with reading_checksummed(
        _KIND, data, path, "a journal that is understood, although it is whole", _CURE
    ) as body:
        version = integer(body["messageVersion"])
        messages = tuple(
            [
                CommitMessage.deserialize(base64.b64decode(encoded, validate=True), version)
                for encoded in body["messages"]
            ]
        )
        for message in messages:
            for name in message.file_names():
                checked_name(name, path)  # raises for a wrong name
        reused_millis = body.get("reusedMillis")
        if reused_millis is not None:
            reused_millis = integer(reused_millis)
        return JournalEntry(
            **values_of_json(body, _FIELDS),
            messages=messages,
            stage_uuids=tuple(map(str, body["stageUuids"])),
            abandoned=tuple(map(str, body["abandoned"])),
            base=SnapshotRef.of_optional_node(body["base"]),
            newest=SnapshotRef.of_optional_node(body.get("newest")),
            previous=_previous(body["previous"]),
            reused_millis=reused_millis,
            overwrites=bool(body.get("overwrites", False)),
            merges=bool(body.get("merges", False)),
        )


def _previous(node: dict[str, Any] | None) -> PreviousBatch | None:
    if not node:
        return None
    return PreviousBatch(
        batch_id=integer(node["batchId"]), snapshot=SnapshotRef.of_node(node["snapshot"])
    )


class Journal:
    """The journal of one commit user in one table."""

    def __init__(self, storage: Storage, user: str, folder: str | None = None) -> None:
        """`folder` is the user's folder; None if it follows from the user's name. Callers that read
        the journals of all users know only the folder. These callers pass an empty name.
        """
        self._storage = storage
        self._folder = folder or user_folder(user)
        self._kept: tuple[int, ...] | None = None  # the batches with an entry; None if unknown

    def batches(self) -> list[int]:
        """The batches that have an entry, ascending."""
        ids = [id_in_name(file.name, "") for file in self._storage.list_files(self._folder)]
        return sorted(batch_id for batch_id in ids if batch_id is not None)

    def read(self, batch_id: int) -> JournalEntry | None:
        """The entry of that batch. Raises `CorruptMetadata`, `UnknownVersion`."""
        path = self._path(batch_id)
        data = read_if_there(self._storage.read, path)
        return None if data is None else decode_journal_entry(data, path)

    def write(self, entry: JournalEntry) -> None:
        """Writes the entry of a batch atomically. The entry of an earlier attempt at the batch is
        replaced.
        """
        self._storage.write(self._path(entry.batch_id), encode_journal_entry(entry))
        if self._kept is not None:
            others = [batch_id for batch_id in self._kept if batch_id != entry.batch_id]
            self._kept = (*others, entry.batch_id)

    def trim(self, batch_id: int) -> None:
        """Removes the entries of batches before `batch_id`, except the newest of these entries.
        Entries of later batches stay, because a later run may have written them while this run was
        paused. Raises `StorageError`.
        """
        present = self.batches() if self._kept is None else self._kept
        earlier = sorted(batch for batch in present if batch < batch_id)
        self._storage.together([partial(self.remove, batch) for batch in earlier[:-1]])
        self._kept = (*earlier[-1:], batch_id)

    def remove_later(self, batch_id: int) -> None:
        """Removes the entries of batches after `batch_id`."""
        later = [batch for batch in self.batches() if batch > batch_id]
        self._storage.together([partial(self.remove, batch) for batch in later])

    def remove(self, batch_id: int) -> None:
        """Removes the entry of a batch. It is not an error if the entry is missing."""
        self._storage.delete(self._path(batch_id))

    def remove_other_tables(self, schema_digest: str) -> None:
        """Removes the entries with another digest of the first schema. They belong to other tables
        that were at this location. Entries that cannot be read stay. Raises `StorageError`.
        """
        for batch_id in self.batches():
            try:
                entry = self.read(batch_id)
            except FormatError:
                continue
            if entry is not None and entry.schema_digest != schema_digest:
                self.remove(batch_id)

    def clear(self) -> None:
        """Removes all entries."""
        for batch_id in self.batches():
            self.remove(batch_id)

    def _path(self, batch_id: int) -> str:
        return f"{self._folder}/{batch_id}"
