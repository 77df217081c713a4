"""What a journal records about one attempt at a batch, and its bytes (exactly-once.md §4). The bytes are a checksummed
file with JSON in it. `table/journal.py` defines where these files are and how long they are kept."""

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.json_text import decode_checksummed, encode_checksummed, integer, optional_text, understanding
from paimon_stream.format.names import checked_name
from paimon_stream.format.snapshot_json import SnapshotRef, json_key

_KIND: Final = "journal"
_CURE: Final = (
    "Move it away, and the file 'writer' beside it, which vouches for the journal; the batch is then judged "
    "by the table's snapshots alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What one attempt at one batch has prepared. Times are epoch milliseconds.

    `base` is the snapshot up to which it was known who had published what when the batch was judged, None for the empty
    table. `newest` was the latest snapshot then; None if it is `base`, or in entries of older releases. `previous` is
    the last batch that this stream had published before. Each of `stage_uuids` is part of the names of the metadata
    that this attempt (the first uuid) or an earlier one at the batch may have written. `abandoned` has the paths of the
    data files of earlier attempts that this one does not use. `overwrites`: the batch replaces the whole table."""

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
    overwrites: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousBatch:
    """The outcome of an earlier batch: its id, and the snapshot it became."""

    batch_id: int
    snapshot: SnapshotRef


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("batch_id", "schema_id", "total_buckets", "prepared_millis"), integer),
    **dict.fromkeys(("query_id", "run_id", "checkpoint", "query_name", "offsets_hash"), optional_text),
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
    }
    return encode_checksummed(_KIND, body)


def decode_journal_entry(data: bytes, path: str) -> JournalEntry:
    """The entry in a file; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    body = decode_checksummed(_KIND, data, path)
    with understanding(path, len(data), "a journal that is understood, although it is whole", _CURE):
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
            and PreviousBatch(batch_id=integer(previous["batchId"]), snapshot=_ref(previous["snapshot"])),
            overwrites=bool(body.get("overwrites", False)),
        )


def _ref(node: dict[str, Any]) -> SnapshotRef:
    return SnapshotRef(id=integer(node["id"]), nonce=str(node["nonce"]))
