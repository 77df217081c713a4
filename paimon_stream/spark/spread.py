"""Whether rows of a batch would be spread over many small files, judged by the batches before.

A task writes files of its own for each partition and bucket it has rows of, so a batch of many tasks may
leave hundreds of small files where a few would do, and readers open each of them. To bring the rows of each
(partition, bucket) to one task takes a third to a half more than to write them where they are
(docs/performance.md), so it is done where the files would be many times as many, and small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paimon_stream.format.commit_message import CommitMessage

__all__ = ["Spread"]

_MANY_FILES: Final = 4
"""So many files of a (partition, bucket) in one batch, on average, are many."""

_SMALL_FILE: Final = 4 * 2**20
_LARGEST_FILE: Final = 64 * 2**20
"""A task of one (partition, bucket) is not given more than this, compressed: the others would wait for it."""


@dataclass(slots=True)
class Spread:
    """How the rows of the newest batch that tasks wrote were spread. `gathers` says whether those of the next
    one should be brought together."""

    gathers: bool = False
    _files_of_group: float = 0.0

    def note(self, messages: Sequence[CommitMessage]) -> None:
        """Notes the batch that these messages of tasks are of. Where it was gathered, the tasks are taken to
        be as many as before."""
        written = [message for message in messages if message.new_files]
        groups = len({(message.partition, message.bucket) for message in written})
        if not groups:
            return
        files = sum(len(message.new_files) for message in written)
        size = sum(file.file_size for message in written for file in message.new_files)
        if not self.gathers:
            self._files_of_group = files / groups
        size_of_group = size / groups
        self.gathers = (
            self._files_of_group >= _MANY_FILES
            and size_of_group <= _LARGEST_FILE
            and size_of_group < _SMALL_FILE * self._files_of_group
        )
