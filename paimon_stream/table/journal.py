"""The journal: what a run had prepared when it began to commit (exactly-once.md §4). A batch has
one small file beside the table, `_paimon_stream/<commit user>/<batch id>`: checksummed JSON,
written atomically. The last two stay.

Invariants: an entry is durable before the snapshot of its batch is put. It names all data files of
the attempt and, by their uuids, all metadata that the attempt may stage. So after a kill it says
which files wait to be committed, and which staged metadata is dead. Exactly once does not rest on
it: without a journal the files of a killed run are not reused, and the batch is written again.
"""

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from paimon_stream.errors import FormatError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.json_text import (
    decode_checksummed,
    encode_checksummed,
    integer,
    optional_text,
    understanding,
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

    `base` is the snapshot up to which it was known who had published what when the batch was
    judged, None for the empty table. `newest` was the latest snapshot then; None if it is `base`,
    or in entries of older releases. `previous` is the last batch that this stream had published
    before. Each of `stage_uuids` is part of the names of the metadata that this attempt (the first
    uuid) or an earlier one at the batch may have written. The data files are as old as
    `prepared_millis`; an attempt that took over those of an earlier one was made at
    `reused_millis`, None for others and in entries of older releases. `abandoned` has the paths of
    the data files of earlier attempts that this one does not use. `overwrites`: the batch replaces
    the whole table.
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

    @property
    def attempted_millis(self) -> int:
        """When this attempt was made."""
        return self.prepared_millis if self.reused_millis is None else self.reused_millis


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousBatch:
    """The outcome of an earlier batch: its id, and the snapshot it became."""

    batch_id: int
    snapshot: SnapshotRef


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("batch_id", "schema_id", "total_buckets", "prepared_millis"), integer),
    **dict.fromkeys(
        ("query_id", "run_id", "checkpoint", "query_name", "offsets_hash"), optional_text
    ),
    "schema_digest": str,
}
# Attribute, JSON key, and what reads the value.
_FIELDS: Final = [(name, json_key(name), read) for name, read in _READERS.items()]


def encode_journal_entry(entry: JournalEntry) -> bytes:
    """The content of the entry's file. Raises `InvalidData` for messages that cannot be encoded."""
    body = {
        **{key: getattr(entry, attribute) for attribute, key, _ in _FIELDS},
        "messageVersion": CommitMessage.VERSION,
        "messages": [base64.b64encode(CommitMessage.serialize(m)).decode() for m in entry.messages],
        "stageUuids": list(entry.stage_uuids),
        "abandoned": list(entry.abandoned),
        "base": entry.base and asdict(entry.base),
        "previous": entry.previous
        and {"batchId": entry.previous.batch_id, "snapshot": asdict(entry.previous.snapshot)},
        "overwrites": entry.overwrites,
        **({} if entry.newest is None else {"newest": asdict(entry.newest)}),
        **({} if entry.reused_millis is None else {"reusedMillis": entry.reused_millis}),
    }
    return encode_checksummed(_KIND, body)


def decode_journal_entry(data: bytes, path: str) -> JournalEntry:
    """The entry in a file; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    body = decode_checksummed(_KIND, data, path)
    with understanding(
        path, len(data), "a journal that is understood, although it is whole", _CURE
    ):
        version = integer(body["messageVersion"])
        texts = (base64.b64decode(text, validate=True) for text in body["messages"])
        messages = tuple([CommitMessage.deserialize(data, version) for data in texts])
        for name in chain.from_iterable(one.file_names() for one in messages):
            checked_name(name, path)
        previous = body["previous"]
        return JournalEntry(
            **{attribute: read(body[key]) for attribute, key, read in _FIELDS},
            messages=messages,
            stage_uuids=tuple(map(str, body["stageUuids"])),
            abandoned=tuple(map(str, body["abandoned"])),
            base=None if body["base"] is None else _ref(body["base"]),
            newest=None if body.get("newest") is None else _ref(body["newest"]),
            previous=previous
            and PreviousBatch(
                batch_id=integer(previous["batchId"]), snapshot=_ref(previous["snapshot"])
            ),
            reused_millis=(
                None if body.get("reusedMillis") is None else integer(body["reusedMillis"])
            ),
            overwrites=bool(body.get("overwrites", False)),
        )


def _ref(node: dict[str, Any]) -> SnapshotRef:
    return SnapshotRef(id=integer(node["id"]), nonce=str(node["nonce"]))


class Journal:
    """The journal of one commit user in one table."""

    def __init__(self, storage: Storage, user: str, folder: str | None = None) -> None:
        """`folder` is for callers that read the journals of all users, and do not know the user."""
        self._storage = storage
        self._folder = folder or user_folder(user)
        self._kept: tuple[int, ...] | None = None  # the batches with an entry; None if unknown

    def batches(self) -> list[int]:
        """The batches that have an entry, ascending."""
        names = (stat.name for stat in self._storage.list_files(self._folder))
        return sorted(found for name in names if (found := id_in_name(name, "")) is not None)

    def read(self, batch_id: int) -> JournalEntry | None:
        """The entry of that batch. Raises `CorruptMetadata`, `UnknownVersion`."""
        path = self._path(batch_id)
        data = read_if_there(self._storage.read, path)
        return None if data is None else decode_journal_entry(data, path)

    def write(self, entry: JournalEntry) -> None:
        """Writes the entry atomically, and replaces that of an earlier attempt."""
        self._storage.write(self._path(entry.batch_id), encode_journal_entry(entry))
        if self._kept is not None:
            self._kept = (
                *(batch for batch in self._kept if batch != entry.batch_id),
                entry.batch_id,
            )

    def trim(self, batch_id: int) -> None:
        """Removes the entries of batches before this one, except the last of them. Raises
        `StorageError`. Entries of later batches stay. They exist if this run was paused, and a
        later run went on without it.
        """
        there = self.batches() if self._kept is None else self._kept
        earlier = sorted(batch for batch in there if batch < batch_id)
        self._storage.together([partial(self.remove, batch) for batch in earlier[:-1]])
        self._kept = (*earlier[-1:], batch_id)

    def remove_later(self, batch_id: int) -> None:
        """Removes the entries of batches after this one."""
        later = [batch for batch in self.batches() if batch > batch_id]
        self._storage.together([partial(self.remove, batch) for batch in later])

    def remove(self, batch_id: int) -> None:
        """Removes one entry. It is no error if the entry is missing."""
        self._storage.delete(self._path(batch_id))

    def remove_other_tables(self, schema_digest: str) -> None:
        """Removes the entries of other tables that were at this location: those with another digest
        of the first schema. Entries that cannot be read stay. Raises `StorageError`.
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
