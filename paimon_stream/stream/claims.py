"""Who writes under a commit user: the identity of a stream and what it leaves in the properties of
its snapshots (semantics.md R1.1, R1.5), the claim of a run, and the register of identities that
were judged (exactly-once.md §1; docs/architecture.md, What a stream keeps).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import DuplicateWriter
from paimon_stream.format import json_text
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    MARK_PREFIX,
    Marks,
    Snapshot,
    SnapshotRef,
    own_properties,
)
from paimon_stream.storage.base import PutResult, Storage, read_if_there
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table.layout import OWN_FOLDER, escape_user, id_in_name, user_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIdentity:
    """One run of one streaming writer; None is what Spark did not report. `user` is the commit
    user. `query_id` changes when the query's checkpoint is wiped, `run_id` at each start. `token`
    distinguishes the writers of one run.
    """

    user: str
    query_id: str | None
    run_id: str | None
    checkpoint: str | None = None
    query_name: str | None = None
    token: str

    def properties(self, batch_id: int, offsets_hash: str | None) -> dict[str, str]:
        """The marks for the snapshot of one batch, without unknown values."""
        marks = {
            "query-id": self.query_id,
            "run-id": self.run_id,
            "batch-id": str(batch_id),
            "checkpoint": self.checkpoint,
            "query-name": self.query_name,
            "offsets-hash": offsets_hash,
        }
        return {MARK_PREFIX + key: value for key, value in marks.items() if value is not None}


def is_own(snapshot: Snapshot, identity: WriterIdentity) -> bool:
    """Whether a batch of this stream made the snapshot: it has the stream's user, and is not known
    to be another query's. A batch commit of that user is not: its identifier says nothing about
    batches (semantics.md R1.2).
    """
    if snapshot.commit_user != identity.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
        return False
    theirs = Marks.of(own_properties(snapshot)).query_id
    return theirs is None or identity.query_id is None or theirs == identity.query_id


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """One batch: the number of added files with their rows and bytes, the number of their
    partitions and buckets, and the milliseconds from the start of the write job to the commit.
    `reused` is 1 if an earlier run, which was killed, had written the files. Unknown values are
    None.
    """

    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    partitions: int | None = None
    buckets: int | None = None
    write_millis: int | None = None
    reused: int | None = None

    @classmethod
    def of_messages(
        cls, messages: Iterable[CommitMessage], *, millis: float | None, reused: bool
    ) -> "BatchSummary":
        """The summary of a batch that is about to be published."""
        given = [message for message in messages if message.new_files]
        files = [file for message in given for file in message.new_files]
        return cls(
            files=len(files),
            rows=sum(file.row_count for file in files),
            bytes=sum(file.file_size for file in files),
            partitions=len({message.partition for message in given}),
            buckets=len({(message.partition, message.bucket) for message in given}),
            write_millis=None if millis is None else round(millis),
            reused=1 if reused else None,
        )

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "BatchSummary":
        """The summary in a snapshot's properties. All values are None if the snapshot is not of one
        of our streams.
        """
        return cls(
            **{one.name: id_in_name(properties.get(_key(one.name), ""), "") for one in fields(cls)}
        )

    def properties(self) -> dict[str, str]:
        """The properties, without unknown values."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return {_key(name): str(value) for name, value in known.items() if value is not None}


NO_SUMMARY: Final = BatchSummary()
_PREVIOUS: Final = "previous"


def previous_commit(report: CommitReport | None, conflicts: int = 0) -> dict[str, str]:
    """A property for the next snapshot of the stream: how this commit went; {} if it made none. A
    snapshot cannot say so of itself, because the steps that are measured come after its bytes are
    made. Version 1 is `1 batch=7 attempts=2 conflicts=1 judge=5 write=210 …`: the batch, the
    attempts to publish, the compactions that lost to others (its own, and `conflicts` behind it) if
    there are any, and milliseconds by phase, for which earlier releases take all else.
    """
    if report is None or report.outcome != "committed":
        return {}
    lost = (
        {"conflicts": number} if (number := conflicts + (report.compact_failed is not None)) else {}
    )
    numbers = {"batch": report.identifier, "attempts": report.attempts, **lost, **report.phases}
    return {
        _key(_PREVIOUS): " ".join(
            ("1", *(f"{name}={value:.0f}" for name, value in numbers.items()))
        )
    }


def previous_of(properties: Mapping[str, str]) -> Mapping[str, int]:
    """What `previous_commit` says in a snapshot's properties; {} if there is nothing, or of a
    version that this release does not know.
    """
    found = re.fullmatch(r"1((?: [\w-]{1,40}=\d{1,19}){1,20})", properties.get(_key(_PREVIOUS), ""))
    return (
        {}
        if found is None
        else {key: int(value) for key, value in (one.split("=") for one in found[1].split())}
    )


def phases_of(previous: Mapping[str, int]) -> dict[str, int]:
    """The milliseconds by phase in what `previous_of` gives."""
    return {
        name: millis
        for name, millis in previous.items()
        if name not in ("batch", "attempts", "conflicts")
    }


def _key(name: str) -> str:
    return MARK_PREFIX + name.replace("_", "-")


_CLAIM: Final = "claim-"
_RUNS_KEPT: Final = 64
_CURE: Final = "Move the file away. The stream is then judged only by the table's snapshots."


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredWriter:
    """A stream that was admitted to this table, with its identity at its newest start.
    `schema_digest`, the digest of the first schema, distinguishes the table from a later one of the
    same name. From batch `journal_since` on, every commit was journalled, so a missing entry proves
    that a batch never reached its commit; None while the journal is off. `run` names the run that
    wrote the register, None in those of older releases. `given_up` are the batches over which an
    operator let the stream go on although they are not in the table, as pairs of the first and the
    last one, ascending: what was noted of them is not asked about again. `asks_notes`: a fast
    forward has taken batches of this stream, and put those of the same query in a branch in their
    place, so the next judgement asks the notes of removals. `earlier_runs` are the runs before, the
    newest first, as far back as they are kept. `forwarded_runs` are those of them that have not
    written here, but in a branch to which the table was forwarded since the stream last began here.
    `asked_notes` are the names of the notes because of which `asks_notes` was so, also before.
    `passed_over`: an operator let a checkpoint that had been rewound continue from this batch on,
    and write again what this snapshot of the stream and those before it have; None if there was no
    such decision.
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
        """The register as that of a later run."""
        before = [one for one in (self.run, *self.earlier_runs) if one not in (None, run)]
        return replace(self, run=run, earlier_runs=tuple(filter(None, before[:_RUNS_KEPT])))


def _passed_over(batch_id: object, snapshot_id: object, nonce: object) -> tuple[int, SnapshotRef]:
    snapshot = SnapshotRef(id=json_text.integer(snapshot_id), nonce=str(nonce))
    return json_text.integer(batch_id), snapshot


# Attribute, JSON key, and what reads the value.
_FIELDS: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    ("user", "user", str),
    ("query_id", "queryId", json_text.optional_text),
    ("checkpoint", "checkpoint", json_text.optional_text),
    ("query_name", "queryName", json_text.optional_text),
    ("schema_digest", "schemaDigest", str),
    (
        "journal_since",
        "journalSince",
        lambda value: None if value is None else json_text.integer(value),
    ),
    ("run", "run", json_text.optional_text),
    (
        "given_up",
        "givenUp",
        lambda value: tuple(
            [(json_text.integer(first), json_text.integer(last)) for first, last in value]
        ),
    ),
    ("asks_notes", "asksNotes", bool),
    ("earlier_runs", "earlierRuns", lambda value: tuple(map(str, value))),
    ("forwarded_runs", "forwardedRuns", lambda value: tuple(map(str, value))),
    ("asked_notes", "askedNotes", lambda value: tuple(map(str, value))),
    ("passed_over", "passedOver", lambda value: _passed_over(*value) if value else None),
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


class Claims:
    """The claims and registers in one table, for one run of one writer."""

    def __init__(self, storage: Storage, identity: WriterIdentity) -> None:
        self._storage = storage
        self._identity = identity
        self._folder = user_folder(identity.user)
        self.run = escape_user(identity.run_id or identity.token)
        self._claim = f"{self._folder}/{_CLAIM}{self.run}"

    def acquire(self) -> frozenset[str]:
        """Claims the commit user for this writer of this run, ends the claims of earlier runs, and
        returns their names. What the register of one of them proves stays proven: it names this run
        before that claim ends, so a run that dies in between, or before it registers, leaves it as
        it was. Raises `DuplicateWriter` if another sink of this run has claimed it.
        """
        mine = self._identity.token
        content = json_text.encode_checksummed(
            "claim", {"token": mine, "user": self._identity.user}
        )
        if self._storage.put_if_absent(self._claim, content) is PutResult.EXISTS:
            data = self._storage.read(self._claim, json_text.MOST_JSON)
            holder = json_text.decode_checksummed("claim", data, self._claim).get("token")
            if holder != mine:
                raise duplicate_writer(self._storage.location, self._identity.user)
        standing, present = self._storage.together([self.standing, self.own])
        earlier: frozenset[str] = standing - {self.run}
        if present is not None and present.run in earlier:
            self._write(present.with_run(self.run))
        ends = [
            partial(self._storage.delete, f"{self._folder}/{_CLAIM}{run}")
            for run in sorted(earlier)
        ]
        self._storage.together(ends)
        return earlier

    def standing(self) -> frozenset[str]:
        """The names of the runs that no later one has ended; usually that of the newest run."""
        return standing_runs(self._storage, self._identity.user)

    def holds(self) -> bool:
        """Whether the claim still exists. If so, no later run of this commit user has begun."""
        return self._storage.exists(self._claim)

    def is_ended(self) -> bool:
        """Whether a later run has ended the claim. A table that was created again has no claims."""
        return not self.holds() and bool(self._storage.list_files(self._folder, _CLAIM))

    def claimed(self, user: str) -> bool:
        """Whether a sink of this run writes under the given commit user. True if the run id is not
        known.
        """
        run_id = self._identity.run_id
        if run_id is None:
            return True
        return self._storage.exists(f"{user_folder(user)}/{_CLAIM}{escape_user(run_id)}")

    def register(
        self,
        schema_digest: str,
        journal_since: int | None,
        present: RegisteredWriter | None = None,
        *,
        given_up: tuple[tuple[int, int], ...] = (),
        passed_over: tuple[int, SnapshotRef] | None = None,
    ) -> None:
        """Records that this identity was judged and admitted, unless the register that is `present`
        says the same. The other parameters are as in `RegisteredWriter`.
        """
        known = {
            name: getattr(self._identity, name)
            for name in ("user", "query_id", "checkpoint", "query_name")
        }
        new = RegisteredWriter(
            **known,
            schema_digest=schema_digest,
            journal_since=journal_since,
            run=self.run,
            given_up=given_up,
            passed_over=passed_over,
            earlier_runs=() if present is None else present.with_run(self.run).earlier_runs,
            asked_notes=() if present is None else present.asked_notes,
        )
        if new != present:
            self._write(new)

    def _write(self, new: RegisteredWriter) -> None:
        body = {
            key: value
            for attribute, key, _ in _FIELDS
            if (value := getattr(new, attribute)) or key not in _LEFT_OUT_IF_EMPTY
        }
        if new.passed_over is not None:
            batch_id, snapshot = new.passed_over
            body["passedOver"] = [batch_id, snapshot.id, snapshot.nonce]
        self._storage.write(f"{self._folder}/writer", json_text.encode_checksummed("writer", body))

    def own(self) -> RegisteredWriter | None:
        """The register of this commit user."""
        return registered_writer(self._storage, self._identity.user)


@dataclass(slots=True, kw_only=True)
class RunFence:
    """Whether another run can have published one batch where snapshots have expired since the batch
    was judged on `seen`. The committer calls it where it finds such a gap. The own claim excludes
    later runs, but not earlier ones (exactly-once.md §5; docs/architecture.md, What a stream
    keeps). `attempted`: an earlier run may have attempted the batch. `live` counts the files of
    known earlier attempts that are part of the table.
    """

    claims: Claims
    refuse: ReplayErrors
    seen: SnapshotRef | None
    attempted: bool
    live: Callable[[], int]
    gap_seen: bool = False

    def __call__(self) -> bool:
        """Whether nobody else can have published the batch in the gap. Raises `SharedCheckpoint` if
        an earlier run has, `HistoryUnknown` if one may have and no operator has decided to
        continue, `StorageError`, `FormatError`.
        """
        self.gap_seen = True
        if self.attempted and self.live():
            raise self.refuse.published_by_earlier_run()
        if not self.claims.holds():
            return False
        if self.attempted:
            after = 0 if self.seen is None else self.seen.id
            self.refuse.history_unknown(
                f"snapshots after {after} expired while this run worked on it, and an earlier run of "
                "this stream may have published it in one of them"
            )
        return True


def standing_runs(storage: Storage, user: str) -> frozenset[str]:
    """The names of the runs of a commit user that no later one has ended."""
    claims = storage.list_files(user_folder(user), _CLAIM)
    return frozenset(one.name.removeprefix(_CLAIM) for one in claims)


def registered_writers(storage: Storage, *, leave_out: str = "") -> tuple[RegisteredWriter, ...]:
    """All streams that are registered in a table, except the folder `leave_out`. Reads one small
    file for each.
    """
    folders = [f"{OWN_FOLDER}/{name}" for name in storage.list_folders(OWN_FOLDER)]
    wanted = [partial(_read_register, storage, folder) for folder in folders if folder != leave_out]
    return tuple(one for one in storage.together(wanted) if one is not None)


def registered_writer(storage: Storage, user: str) -> RegisteredWriter | None:
    """The register of a commit user; None if there is none."""
    return _read_register(storage, user_folder(user))


def _read_register(storage: Storage, folder: str) -> RegisteredWriter | None:
    path = f"{folder}/writer"
    data = read_if_there(storage.read, path, json_text.MOST_JSON)
    if data is None:
        return None
    body = {
        "run": None,  # older releases did not note the run
        **dict.fromkeys(_LEFT_OUT_IF_EMPTY, ()),
        **json_text.decode_checksummed("writer", data, path),
    }
    with json_text.understanding(path, len(data), "a register of a stream", _CURE):
        return RegisteredWriter(**{attribute: read(body[key]) for attribute, key, read in _FIELDS})


def duplicate_writer(location: str, user: str) -> DuplicateWriter:
    """The error for two sinks of one run under one commit user."""
    text = (
        f"Two sinks of the same run write to {location} as commit user {user!r}, so one of them would be taken for a "
        "replay of the other. Nothing was written by the second. Make each sink once, outside the batch function, and "
        "give several sinks names: PaimonSink(…, name='first'), PaimonSink(…, name='second'). In a query that has run "
        "before, leave the first sink as it is, because it may have written this batch, and name the others."
    )
    return DuplicateWriter(text, table=location, user=user)
