"""What a snapshot's properties say of its batch, and of how the one before it was committed
(semantics.md R1.5). These are a few small numbers that are known before publishing. No judgement
uses them, and other engines ignore them.
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
