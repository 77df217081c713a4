"""Going back one release: the older one goes on with the files of this code, or ends with
`UnknownVersion`.

`OLDER` states, as data, what the code of November 2026 (the newest folder of this package) opens
beside a table, and what it needs there. A file of this code has a form that this older code reads,
or a version that it refuses, or a name that it never opens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from paimon_stream.format import json_text
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table import partition_notes
from paimon_stream.table.branch_identity import write_identity
from paimon_stream.table.receipts import AskedWrite, Receipt, write_receipt
from paimon_stream.table.register import write_register
from paimon_stream.table.removals import RemovalNotes, Removed, note_restored
from tests.persisted import values
from tests.persisted.archive import OWN_FOLDER, own_files

_VERSION = "1"
"""The only version of all kinds that the older code reads: it compares for equality."""
_MESSAGES = 11
"""The version of commit messages in a journal entry that the older code reads."""
_MOST_NONCES = 1000


@dataclass(frozen=True)
class Form:
    """The names of the files of a kind, in `_paimon_stream`, and the keys that have to be there."""

    names: str
    keys: frozenset[str]


OLDER: Mapping[str, Form] = {
    "journal": Form(
        r"[^/]+/\d{1,19}",
        frozenset(
            [
                "batchId",
                "schemaId",
                "totalBuckets",
                "preparedMillis",
                "queryId",
                "runId",
                "checkpoint",
                "queryName",
                "offsetsHash",
                "schemaDigest",
                "messageVersion",
                "messages",
                "base",
                "previous",
                "stageUuids",
                "abandoned",
            ]
        ),
    ),
    "writer": Form(
        r"[^/]+/writer",
        frozenset(["user", "queryId", "checkpoint", "queryName", "schemaDigest", "journalSince"]),
    ),
    "claim": Form(r"[^/]+/claim-[^/]+", frozenset({"token"})),
    "rollbacks": Form(r"rolled-back\.json", frozenset({"nonces"})),
    "expiry": Form(r"expiring-\d{1,19}", frozenset({"snapshot", "following"})),
}
_PLAIN = r"branch-[^/]+"
"""A note of a branch has no first line with a version. Its name is all that the older code needs."""
NEVER_OPENED = r"[a-z-]+\.[^/]+"
"""In `_paimon_stream` itself the older code looks for the files above, and for folders, which have
no dot in their names. It passes over every other file.
"""
RECEIPTS = r"once\.receipts/[^/]+\.json"
"""In the folders of `_paimon_stream` the older code opens `writer`, claims, and names of digits."""


def unread(path: str, data: bytes) -> str | None:
    """Why the older code would misread the file, or take it for damaged; None if it goes on with
    it, refuses its version, or never opens it.
    """
    name = path.rpartition(f"{OWN_FOLDER}/")[2]
    kinds = [kind for kind, form in OLDER.items() if re.fullmatch(form.names, name)]
    if not kinds:
        if any(re.fullmatch(form, name) for form in (_PLAIN, NEVER_OPENED, RECEIPTS)):
            return None
        return "nothing says whether it is opened"
    first, _, text = data.decode().partition("\n")
    words = first.split(" ")
    if words[:2] != ["paimon-stream", kinds[0]] or len(words) != 4:
        return "its first line is not that of its kind"
    if words[2] != _VERSION:
        return None  # UnknownVersion
    if words[3] != f"sha256:{hashlib.sha256(text.removesuffix(chr(10)).encode()).hexdigest()}":
        return "its checksum does not match"
    body = json.loads(text)
    missing = OLDER[kinds[0]].keys - body.keys()
    if missing:
        return f"it has no {sorted(missing)}"
    if body.get("messageVersion", _MESSAGES) != _MESSAGES:
        return None  # UnknownVersion
    nonces = body.get("nonces", [])
    if len(nonces) > _MOST_NONCES or not all(isinstance(nonce, str) for nonce in nonces):
        return "its nonces are not a short list of texts"
    return None


def files_of_this_code() -> dict[str, bytes]:
    """Each kind of file that sinks and maintenance write, in a table and in a branch."""
    storage = MemoryStorage()
    values.NEWEST.write(storage)
    branch: Storage = branch_storage(storage, "made-now")
    write_identity(branch, SnapshotRef(id=1, nonce="n"), simulated(1))
    identity = WriterIdentity(user="etl", query_id="q", run_id="r", token="t")
    claims = Claims(branch, identity)
    claims.acquire()
    claims.register("digest", 0)
    forwarded = replace(
        claims.own(),  # type: ignore[type-var]
        asks_notes=True,
        asked_notes=("removed.1-a.json",),
        passed_over=(3, SnapshotRef(id=6, nonce="n")),
    )
    write_register(branch, forwarded)  # type: ignore[arg-type]
    notes = RemovalNotes(branch, simulated(1), "fast forward", SnapshotRef(id=1, nonce="n"))
    gone = [
        Removed(snapshot=SnapshotRef(id=2 + one, nonce=f"n-{one}"), user="etl", identifier=one)
        for one in range(_MOST_NONCES + 500)
    ]
    attempt = Removed(snapshot=None, uuids=("u",), user="etl", identifier=1, certain=False)
    assert notes.announce([*gone, attempt])
    notes.complete()
    note_restored(branch, [SnapshotRef(id=2, nonce="n-0")])
    asked = AskedWrite(kind="append", replaced=None, dynamic=None, columns=("id",), rows=3)
    receipt = Receipt(
        identity="load-2026-11-28",
        schema_digest="digest",
        asked=asked,
        snapshot=SnapshotRef(id=1, nonce="n"),
        written_rows=3,
        stood_millis=1_700_000_000_000,
    )
    write_receipt(branch, receipt)
    filled = partition_notes.PartitionNote(["p=1"])
    branch.write(partition_notes.note_path("u"), partition_notes.encode_note(filled))
    tagged = partition_notes.PartitionNote(tags={"day": "tag=day"})
    branch.write(partition_notes.note_path("v"), partition_notes.encode_note(tagged))
    return own_files(storage)


FILES = files_of_this_code()


def test_every_kind_of_file_of_this_code_is_looked_at() -> None:
    first_lines = (data.partition(b"\n")[0].decode().split(" ") for data in FILES.values())
    kinds = {words[1] for words in first_lines if words[0] == "paimon-stream"}
    assert kinds == set(json_text._VERSIONS)


@pytest.mark.parametrize("path", sorted(FILES))
def test_the_older_release_goes_on_with_a_file_of_this_code_or_refuses_it(path: str) -> None:
    assert unread(path, FILES[path]) is None


def test_what_is_not_an_older_form_would_be_found() -> None:
    path = next(path for path in FILES if path.endswith("/writer"))
    _, _, text = FILES[path].partition(b"\n")
    body = json.loads(text)
    newer = FILES[path].replace(b"paimon-stream writer 1 ", b"paimon-stream writer 2 ")
    assert unread(path, newer) is None
    assert unread(path, FILES[path].replace(b"user", b"uses", 1)) == "its checksum does not match"
    lacking = json_text.encode_checksummed("writer", {**body, "checkpoint": 1})
    assert unread(path, lacking) is None
    del body["journalSince"]
    lacking = json_text.encode_checksummed("writer", body)
    assert unread(path, lacking) == "it has no ['journalSince']"
    assert unread(f"{OWN_FOLDER}/etl/notes", b"") == "nothing says whether it is opened"
    assert unread(f"{OWN_FOLDER}/etl/7", FILES[path]) == "its first line is not that of its kind"
