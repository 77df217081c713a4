"""What a snapshot's properties say of its batch, and of how the previous batch was committed
(semantics.md R1.5). The properties are a few small numbers that are known before publishing. No
judgement uses them, and other engines ignore them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from paimon_stream.commit.report import CommitReport
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_marks import MARK_PREFIX
from paimon_stream.table.layout import id_in_name


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """One batch, in figures. A figure that is not known is None.

    Attributes:
        files: the number of added files.
        rows: the number of rows in the added files.
        bytes: the size of the added files.
        partitions: the number of partitions that get files.
        buckets: the number of buckets that get files.
        write_millis: the milliseconds from the start of the write job to the commit.
        reused: 1 if an earlier run, which was killed, had written the files.
        rows_updated: the number of rows of the table that a merge updates; None without a merge.
        rows_deleted: the number of rows of the table that a merge deletes.
        rows_inserted: the number of rows that a merge inserts.
    """

    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    partitions: int | None = None
    buckets: int | None = None
    write_millis: int | None = None
    reused: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    rows_inserted: int | None = None

    @classmethod
    def of_messages(
        cls, messages: Iterable[CommitMessage], *, millis: float | None, reused: bool
    ) -> "BatchSummary":
        """The summary of a batch that is about to be published.

        Args:
            messages: the commit messages of the batch.
            millis: the milliseconds from the start of the write job to the commit, if they are
                known.
            reused: whether an earlier run has written the files.
        """
        with_files = [message for message in messages if message.new_files]
        files = [file for message in with_files for file in message.new_files]
        write_millis = None
        if millis is not None:
            write_millis = round(millis)
        reused_mark = None
        if reused:
            reused_mark = 1
        return cls(
            files=len(files),
            rows=sum(file.row_count for file in files),
            bytes=sum(file.file_size for file in files),
            partitions=len({message.partition for message in with_files}),
            buckets=len({(message.partition, message.bucket) for message in with_files}),
            write_millis=write_millis,
            reused=reused_mark,
        )

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "BatchSummary":
        """The summary in a snapshot's properties. All values are None if the snapshot is not of one
        of our streams.
        """
        names = [field.name for field in fields(cls)]
        return cls(**{name: id_in_name(properties.get(_key(name), ""), "") for name in names})

    def properties(self) -> dict[str, str]:
        """The summary as properties of a snapshot. A figure that is not known has no property."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {_key(name): str(value) for name, value in values.items() if value is not None}


NO_SUMMARY: Final = BatchSummary()


_PREVIOUS: Final = "previous"


def previous_commit(report: CommitReport | None, conflicts: int = 0) -> dict[str, str]:
    """A property for the next snapshot of the stream: how this commit went; {} if it made no
    snapshot. A snapshot cannot say how its own commit went: its bytes are made before the measured
    steps end.

    Version 1 is `1 batch=7 attempts=2 conflicts=1 judge=5 write=210 …`: the batch, the attempts to
    publish, the compactions that lost to others if there are any, and milliseconds by phase.
    Earlier releases take each name that they do not know for a phase.

    Args:
        report: the report of the commit; None if there was none.
        conflicts: the compactions behind the batch that lost to others. A compaction in the batch's
            own commit that failed is added here.
    """
    if report is None or report.outcome != "committed":
        return {}
    if report.compact_failed is not None:
        conflicts += 1
    numbers: dict[str, float] = {"batch": report.identifier, "attempts": report.attempts}
    if conflicts:
        numbers["conflicts"] = conflicts
    numbers |= report.phases
    words = [f"{name}={value:.0f}" for name, value in numbers.items()]
    return {_key(_PREVIOUS): " ".join(["1", *words])}


def previous_of(properties: Mapping[str, str]) -> Mapping[str, int]:
    """What `previous_commit` says in a snapshot's properties; {} if it says nothing, or if its
    version is not known to this release.
    """
    match = re.fullmatch(r"1((?: [\w-]{1,40}=\d{1,19}){1,20})", properties.get(_key(_PREVIOUS), ""))
    if match is None:
        return {}
    pairs = [word.split("=") for word in match[1].split()]
    return {name: int(value) for name, value in pairs}


def phases_of(previous: Mapping[str, int]) -> dict[str, int]:
    """The milliseconds by phase in what `previous_of` gives."""
    return {
        name: millis
        for name, millis in previous.items()
        if name not in ("batch", "attempts", "conflicts")
    }


def _key(name: str) -> str:
    return MARK_PREFIX + name.replace("_", "-")
