"""Whether the rows of a batch will fit into the memory of the tasks that write them, judged by the batches
before.

Rows that fit are sorted by the tasks that write them, which costs a fraction of a shuffle and sort of rows in
Spark (shuffle.py). Rows that do not fit are still written, in bounded memory, but a bucket gets several files
where one would do; so a stream of such batches leaves the sorting to Spark, which spills.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paimon_stream.format.commit_message import CommitMessage

__all__ = ["MemoryFit"]

_RETURN_SHARE: Final = 0.5


@dataclass(slots=True)
class MemoryFit:
    """What the batches of a run were like. Sizes are bytes of files. The first batch is taken to fit."""

    _too_large: int | None = None
    _newest: int = 0

    def expected(self) -> bool:
        """Whether the next batch is expected to fit: all did, or the newest was much smaller than the one
        that did not."""
        return self._too_large is None or self._newest < self._too_large * _RETURN_SHARE

    def note(self, messages: Iterable[CommitMessage]) -> None:
        """Notes the batch that these messages are of. A bucket with several files did not fit, or was large
        anyway."""
        several = False
        self._newest = 0
        for message in messages:
            several |= len(message.new_files) > 1
            self._newest += sum(file.file_size for file in message.new_files)
        if several and (self._too_large is None or self._newest < self._too_large):
            self._too_large = self._newest
