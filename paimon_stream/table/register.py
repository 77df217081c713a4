"""The register lists the streams that were judged and admitted to a table. Each stream has a file
`_paimon_stream/<commit user>/writer` (exactly-once.md §1, §4). The file is made only after a first
batch was judged, so an identity that was refused is not registered. A new run of a registered
stream adds its name to the file before its first batch is judged (`stream/claims.py`). A stream
writes the file, and a fast forward copies it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from paimon_stream.format import json_text
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.layout import user_folder, user_folders

CLAIM: Final = "claim-"
"""How the name of a claim's file begins; the run follows."""

_RUNS_KEPT: Final = 64
_CURE: Final = "Move the file away. The stream is then judged only by the table's snapshots."


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredWriter:
    """A stream that was admitted to this table, with its identity at its newest start.

    Attributes:
        user: the commit user.
        query_id: the id of the query; None if it has none.
        checkpoint: the location of its checkpoint; None if it is not known.
        query_name: the name of the query; None if it has none.
        schema_digest: the digest of the first schema. The digest distinguishes the table from a
            later one of the same name.
        journal_since: from this batch on, every commit was journalled, so a missing entry proves
            that a batch never reached its commit. None while the journal is off.
        run: the run that wrote the register; None in registers of older releases.
        given_up: the batches that are not in the table, and without which an operator let the
            stream continue, as pairs of the first and the last batch, ascending. Notes of these
            batches are not asked about again.
        asks_notes: whether the next judgement asks the notes of removals, because a fast forward
            has replaced batches of this stream by batches that the same query wrote in a branch.
        earlier_runs: the earlier runs, the newest first, as far back as they are kept.
        forwarded_runs: the earlier runs that have written only in a branch to which the table was
            forwarded since the stream last began in the table.
        asked_notes: the names of the notes because of which `asks_notes` is or was true.
        passed_over: a batch and a snapshot of the stream. An operator let a rewound checkpoint
            continue from this batch on, and write again what this snapshot and earlier ones have.
            None if there was no such decision.
    """

    user: str
    query_id: str | None
    checkpoint: str | None
    query_name: str | None
    schema_digest: str
    journal_since: int | None
    run: str | None = None
    given_up: tuple[tuple[int, int], ...] = ()
    asks_notes: bool = False
    earlier_runs: tuple[str, ...] = ()
    forwarded_runs: tuple[str, ...] = ()
    asked_notes: tuple[str, ...] = ()
    passed_over: tuple[int, SnapshotRef] | None = None

    @property
    def runs(self) -> frozenset[str]:
        """The runs in which the stream has written, as far back as they are kept. Two commit users
        of a query that were in one run are two sinks; a sink has one name in a run.
        """
        return frozenset(filter(None, (self.run, *self.earlier_runs)))

    def with_run(self, run: str) -> "RegisteredWriter":
        """The register of a stream after a later run, named `run`, has begun."""
        before = [name for name in (self.run, *self.earlier_runs) if name is not None]
        earlier = [name for name in before if name != run][:_RUNS_KEPT]
        return replace(self, run=run, earlier_runs=tuple(name for name in earlier if name))


def _ranges(pairs: Any) -> tuple[tuple[int, int], ...]:
    return tuple([(json_text.integer(first), json_text.integer(last)) for first, last in pairs])


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values))


def _passed_over(values: Any) -> tuple[int, SnapshotRef] | None:
    if not values:
        return None
    batch_id, snapshot_id, nonce = values
    snapshot = SnapshotRef(id=json_text.integer(snapshot_id), nonce=str(nonce))
    return json_text.integer(batch_id), snapshot


_FIELDS: Final = (
    json_text.RecordField("user", "user", str),
    json_text.RecordField("query_id", "queryId", json_text.optional_text),
    json_text.RecordField("checkpoint", "checkpoint", json_text.optional_text),
    json_text.RecordField("query_name", "queryName", json_text.optional_text),
    json_text.RecordField("schema_digest", "schemaDigest", str),
    json_text.RecordField("journal_since", "journalSince", json_text.optional_integer),
    json_text.RecordField("run", "run", json_text.optional_text),
    json_text.RecordField("given_up", "givenUp", _ranges),
    json_text.RecordField("asks_notes", "asksNotes", bool),
    json_text.RecordField("earlier_runs", "earlierRuns", _texts),
    json_text.RecordField("forwarded_runs", "forwardedRuns", _texts),
    json_text.RecordField("asked_notes", "askedNotes", _texts),
    json_text.RecordField("passed_over", "passedOver", _passed_over),
)


_LEFT_OUT_IF_EMPTY: Final = (
    "givenUp",
    "asksNotes",
    "earlierRuns",
    "forwardedRuns",
    "askedNotes",
    "passedOver",
)
"""What nearly all registers, or those of older releases, do not have."""


def register_path(folder: str) -> str:
    """The file of the register in the folder of a commit user."""
    return f"{folder}/writer"


def encode_register(registered: RegisteredWriter) -> bytes:
    """The content of the file."""
    values = json_text.values_to_json(registered, _FIELDS)
    body = {key: value for key, value in values.items() if value or key not in _LEFT_OUT_IF_EMPTY}
    if registered.passed_over is not None:
        batch_id, snapshot = registered.passed_over
        body["passedOver"] = [batch_id, snapshot.id, snapshot.nonce]
    return json_text.encode_checksummed("writer", body)


def decode_register(data: bytes, path: str) -> RegisteredWriter:
    """The register of a file; `path` is for messages. Raises `CorruptMetadata`,
    `UnknownVersion`.
    """
    with json_text.reading_checksummed(
        "writer", data, path, "a register of a stream", _CURE
    ) as written:
        body = {
            "run": None,  # older releases did not record the run
            **dict.fromkeys(_LEFT_OUT_IF_EMPTY, ()),
            **written,
        }
        return RegisteredWriter(**json_text.values_of_json(body, _FIELDS))


def write_register(storage: Storage, registered: RegisteredWriter) -> None:
    """Writes the register of a commit user. A present register is replaced. Raises
    `StorageError`.
    """
    storage.write(register_path(user_folder(registered.user)), encode_register(registered))


def registered_writers(storage: Storage, *, leave_out: str = "") -> tuple[RegisteredWriter, ...]:
    """All streams that are registered in a table, except the one with the folder `leave_out`. Reads
    one small file for each stream.
    """
    folders = [folder for folder in user_folders(storage) if folder != leave_out]
    reads = [partial(_read_register, storage, folder) for folder in folders]
    return tuple(writer for writer in storage.together(reads) if writer is not None)


def registered_writer(storage: Storage, user: str) -> RegisteredWriter | None:
    """The register of a commit user; None if there is none."""
    return _read_register(storage, user_folder(user))


def _read_register(storage: Storage, folder: str) -> RegisteredWriter | None:
    path = register_path(folder)
    data = read_if_there(storage.read, path, json_text.MOST_JSON)
    return None if data is None else decode_register(data, path)


def runs_with_claims(storage: Storage, folder: str) -> frozenset[str]:
    """The names of the runs that no later run has ended. The claims in `folder`, the folder of a
    commit user, show them.
    """
    claims = storage.list_files(folder, CLAIM)
    return frozenset(claim.name.removeprefix(CLAIM) for claim in claims)


def vouched_since(registered: RegisteredWriter | None, runs: Collection[str]) -> int | None:
    """The batch from which on the journal is complete: it has this batch and each later one that
    reached its commit. None if that batch is not known. `runs` are the runs whose claims stand. If
    the run that wrote the register is not among these runs, a later run has begun. The later run
    may have had no journal, so the register does not count.
    """
    if registered is not None and is_newest_register(registered, runs):
        return registered.journal_since
    return None


def is_newest_register(registered: RegisteredWriter, runs: Collection[str]) -> bool:
    """Whether the run that wrote the register still has its claim. A later run would have ended the
    claim. `runs` are the runs whose claims stand. A register of an older release names no run, and
    counts as the newest.
    """
    return registered.run is None or registered.run in runs
