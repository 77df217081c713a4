"""Deleting files, counted by what they are; in a dry run only counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.errors import InvalidOption, StorageError, Unavailable
from paimon_stream.storage.base import Storage

__all__ = ["Remover"]

_LOG = logging.getLogger(__name__)
_TOGETHER: Final = 64
"""From so many files on they are deleted by several threads."""


@dataclass(slots=True)
class Remover:
    """Deletes files of one table. `removed` counts them by kind (`data`, `manifest`, …).

    A file that may not be deleted stays as an orphan, with a warning; a storage that does not answer
    (`Unavailable`) ends the work, which the next run takes up where it stopped.
    """

    storage: Storage
    dry_run: bool = False
    threads: int = 8
    removed: Counter[str] = field(default_factory=Counter)
    left: int = 0

    def remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes the files; missing ones are fine. Raises `Unavailable`."""
        wanted = list(paths)
        self.removed[kind] += len(wanted)
        if self.dry_run or not wanted:
            return
        if len(wanted) < _TOGETHER or self.threads < 2:
            for path in wanted:
                self._delete(path)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(self._delete, wanted):
                pass

    def remove_first(self, kind: str, path: str) -> None:
        """Deletes the file without which nothing that follows may be begun. Raises `StorageError`, whatever
        it is."""
        if not self.dry_run:
            self.storage.delete(path)
        self.removed[kind] += 1

    def remove_uncounted(self, path: str) -> None:
        """Deletes a folder, unless it holds something, or a file that is nobody's concern."""
        if not self.dry_run:
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            self.storage.delete(path)
        except Unavailable:
            raise
        except (StorageError, InvalidOption) as why:
            self.left += 1
            _LOG.warning(
                "%s: could not delete %s, it stays as an orphan: %s", self.storage.location, path, why
            )
