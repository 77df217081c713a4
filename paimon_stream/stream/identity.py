"""The identity of one streaming writer, and what it leaves in the properties of its snapshots: marks, by which it knows
them, and a summary (semantics.md R1.1, R1.5; exactly-once.md §1; docs/architecture.md, What a stream keeps)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, MARK_PREFIX, Marks, Snapshot
from paimon_stream.table.layout import id_in_name


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIdentity:
    """One run of one streaming writer. A value is None if Spark did not report it. `user` is the commit user.
    `query_id` survives restarts of the query and changes when its checkpoint is wiped. `run_id` changes at each start.
    `token` distinguishes the writers of one run."""

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
    """Whether a batch of this stream made the snapshot: it has the stream's user, and is not known to be of another
    query. A batch commit under that user is not the stream's: its identifier names no batch (semantics.md R1.2)."""
    if snapshot.commit_user != identity.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
        return False
    theirs = Marks.of(snapshot.properties).query_id
    return theirs is None or identity.query_id is None or theirs == identity.query_id


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """One batch: the number of added files with their rows and bytes, the number of their partitions and
    buckets, and the milliseconds from the start of the write job to the commit. `reused` is 1 if an earlier
    run, which was killed, had written the files. Unknown values are None."""

    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    partitions: int | None = None
    buckets: int | None = None
    write_millis: int | None = None
    reused: int | None = None

    @classmethod
    def of_messages(
        cls, messages: Iterable[CommitMessage], *, write_millis: float | None, reused: bool
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
            write_millis=None if write_millis is None else round(write_millis),
            reused=1 if reused else None,
        )

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "BatchSummary":
        """The summary in a snapshot's properties. All values are None if the snapshot is not of one of our streams."""
        return cls(**{one.name: id_in_name(properties.get(_key(one.name), ""), "") for one in fields(cls)})

    def properties(self) -> dict[str, str]:
        """The properties, without unknown values."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return {_key(name): str(value) for name, value in known.items() if value is not None}


NO_SUMMARY: Final = BatchSummary()


def _key(name: str) -> str:
    return MARK_PREFIX + name.replace("_", "-")
