"""The summary of a batch in the snapshot's properties, so that the table shows what each commit did.

It holds a few small numbers that are known before publishing. No judgement uses them (the marks of
`format/snapshot_json.py` are for that), and other engines ignore them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import MARK_PREFIX


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
        read = {one.name: properties.get(_key(one.name), "") for one in fields(cls)}
        return cls(**{name: int(text) for name, text in read.items() if text.isascii() and text.isdigit()})

    def properties(self) -> dict[str, str]:
        """The properties, without unknown values."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return {_key(name): str(value) for name, value in known.items() if value is not None}


NO_SUMMARY: Final = BatchSummary()


def _key(name: str) -> str:
    return MARK_PREFIX + name.replace("_", "-")
