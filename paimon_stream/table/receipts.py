"""Receipts record what batch writes with an identity have done. Each identity has a file
`_paimon_stream/once.receipts/<identity>.json`: checksummed JSON, written after the commit.

Invariants: a receipt is written only after its rows are part of the table, or after it is known
that there were none. A receipt outlives the snapshot of the rows. Nothing removes a receipt but the
deletion of its branch or table. A fast forward copies it, because main then has the rows.

The receipt says what the write was asked to do. So a write of other rows under the same identity is
an error, if the difference can be seen. The receipt also says which snapshot has the rows, so that
a rollback is noticed.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from paimon_stream.format.json_text import (
    MOST_JSON,
    RecordField,
    encode_checksummed,
    integer,
    optional_integer,
    optional_text,
    reading_checksummed,
    values_of_json,
    values_to_json,
)
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.storage.base import PutResult, Storage, read_if_there
from paimon_stream.storage.together import Request
from paimon_stream.table.layout import RECEIPT_FOLDER, escape_user
from paimon_stream.table.schema import SchemaStore

_KIND: Final = "receipt"
_CURE: Final = (
    "Look for the rows of that write in the table. If they are there, leave the identity alone; if they are "
    "missing, move the file away."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWrite:
    """What a batch write is asked to do, as far as that is known before any row is written.

    Attributes:
        kind: `append` or `overwrite`.
        replaced: the partition spec of an overwrite, as text; None without one.
        dynamic: whether only partitions that get rows are replaced; None if the question does not
            arise, as for an append.
        columns: the names of the columns of the rows, sorted.
        rows: the number of rows; None if the number is not known before the rows are written.
    """

    kind: str
    replaced: str | None
    dynamic: bool | None
    columns: tuple[str, ...]
    rows: int | None

    @property
    def digest(self) -> str:
        """A hash of the attributes. Writes that were asked to do something else have another
        hash.
        """
        values = [self.kind, self.replaced, self.dynamic, self.columns, self.rows]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()

    def difference(self, now: "AskedWrite") -> str | None:
        """How the write `now` differs from this write, as the end of a sentence; None if no
        difference can be seen.
        """
        if now.kind != self.kind:
            return f"it was an {self.kind}, and this is an {now.kind}"
        if (now.replaced, now.dynamic) != (self.replaced, self.dynamic):
            return f"it replaced {_in_words(self)}, and this call replaces {_in_words(now)}"
        if now.columns != self.columns:
            changed = sorted(set(now.columns) ^ set(self.columns))
            return f"its rows had other columns; the difference is {', '.join(map(repr, changed))}"
        if None not in (now.rows, self.rows) and now.rows != self.rows:
            return f"it had {self.rows} rows, and now there are {now.rows}"
        return None


def _in_words(asked: AskedWrite) -> str:
    """What an overwrite replaces."""
    if asked.replaced is not None:
        return f"partition {asked.replaced}"
    return "the partitions that get rows" if asked.dynamic else "the whole table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a batch write with an identity has done.

    Attributes:
        identity: the name under which the write takes effect once.
        schema_digest: the digest of the table's first schema. The digest tells the table from a
            later one at the same place.
        asked: what the write was asked to do.
        snapshot: the snapshot with the rows; None if there was nothing to publish.
        written_rows: the number of rows in the files of that snapshot; None if it is not known.
        stood_millis: a time at which the snapshot stood, or was about to be published (epoch
            milliseconds).
    """

    identity: str
    schema_digest: str
    asked: AskedWrite
    snapshot: SnapshotRef | None
    written_rows: int | None
    stood_millis: int


def _optional_flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


_ASKED: Final = (
    RecordField("kind", "kind", str),
    RecordField("replaced", "replaced", optional_text),
    RecordField("dynamic", "dynamic", _optional_flag),
    RecordField("columns", "columns", lambda value: tuple(map(str, value))),
    RecordField("rows", "givenRows", optional_integer),
)
"""The attributes of `AskedWrite`."""


def receipt_path(identity: str) -> str:
    """The file of the receipt of an identity."""
    return f"{RECEIPT_FOLDER}/{escape_user(identity)}.json"


def encode_receipt(receipt: Receipt) -> bytes:
    """The content of a receipt's file."""
    body = {
        "identity": receipt.identity,
        "schemaDigest": receipt.schema_digest,
        "snapshot": None if receipt.snapshot is None else receipt.snapshot.node(),
        "writtenRows": receipt.written_rows,
        "stoodMillis": receipt.stood_millis,
        **values_to_json(receipt.asked, _ASKED),
    }
    return encode_checksummed(_KIND, body)


def decode_receipt(data: bytes, path: str) -> Receipt:
    """The receipt of a file; `path` is for messages. Raises `CorruptMetadata`, `UnknownVersion`."""
    with reading_checksummed(_KIND, data, path, "a receipt of a batch write", _CURE) as body:
        return Receipt(
            identity=str(body["identity"]),
            schema_digest=str(body["schemaDigest"]),
            asked=AskedWrite(**values_of_json(body, _ASKED)),
            snapshot=SnapshotRef.of_optional_node(body["snapshot"]),
            written_rows=optional_integer(body["writtenRows"]),
            stood_millis=integer(body["stoodMillis"]),
        )


def read_receipt(storage: Storage, identity: str, schemas: SchemaStore) -> Receipt | None:
    """The receipt of an identity in this table; None if there is none. A receipt of another table,
    which was at this place before, does not count. Raises `CorruptMetadata`, `UnknownVersion`,
    `StorageError`.
    """
    path = receipt_path(identity)
    looks: list[Request] = [
        partial(read_if_there, storage.read, path, MOST_JSON),
        schemas.first_digest,
    ]
    data, digest = storage.together(looks)
    receipt = None if data is None else decode_receipt(data, path)
    return receipt if receipt is not None and receipt.schema_digest == digest else None


def write_receipt(storage: Storage, receipt: Receipt) -> None:
    """Writes the receipt, unless this table has one of the same identity: two processes may have
    seen the same commit. Raises `StorageError`.
    """
    path = receipt_path(receipt.identity)
    content = encode_receipt(receipt)
    if storage.put_if_absent(path, content) is PutResult.CREATED:
        return
    if read_receipt(storage, receipt.identity, SchemaStore(storage)) is None:
        storage.write(path, content)  # over that of an earlier table


def copy_receipts(branch: Storage, main: Storage) -> None:
    """Copies the receipts of a branch to main, which has the snapshots of the branch now. If both
    have a receipt of the same identity, that of the branch replaces main's. Raises `StorageError`.
    """
    stats = branch.list_files(RECEIPT_FOLDER)
    contents = branch.together([partial(read_if_there, branch.read, stat.path) for stat in stats])
    copies: list[Request] = [
        partial(main.write, stat.path, content)
        for stat, content in zip(stats, contents, strict=True)
        if content is not None
    ]
    main.together(copies)
