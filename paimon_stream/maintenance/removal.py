"""Deletes files and counts them by kind. A dry run only counts."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.errors import PaimonStreamError, Unavailable
from paimon_stream.storage.base import Storage
from paimon_stream.storage.read_ahead import in_groups

_LOG = logging.getLogger(__name__)
_TOGETHER: Final = 64
"""From this many files on, several threads delete them."""


@dataclass(slots=True)
class Remover:
    """Deletes files of one table. `removed` counts them by kind (`data`, `manifest`, …). A file that cannot be deleted
    stays as an orphan, with a warning (`left`). `impossible` counts the files that cannot exist in the table. A storage
    that does not answer (`Unavailable`) ends the work, and the next run continues it."""

    storage: Storage
    dry_run: bool = False
    threads: int = 8
    removed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    impossible: int = 0

    def remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes the files, in any order. Missing files are no error. Raises `Unavailable`."""
        wanted = list(paths)
        if self.dry_run:
            self.removed[kind] += len(wanted)
        elif len(wanted) < _TOGETHER or self.threads < 2 or not self.storage.has_folders:
            self.removed[kind] += self._delete(wanted)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                self.removed[kind] += sum(pool.map(self._delete, in_groups(wanted, _TOGETHER)))

    def pass_over(self, why: PaimonStreamError) -> None:
        """Counts a file that a name, bucket or partition of its entry proves not to exist in the table."""
        self.impossible += 1
        _LOG.warning("%s: passed over a file that cannot exist: %s", self.storage.location, why)

    def remove_first(self, kind: str, path: str) -> None:
        """Deletes a file that must be gone before anything else may be deleted. Raises any `StorageError`."""
        if not self.dry_run:
            self.storage.delete(path)
        self.removed[kind] += 1

    def remove_uncounted(self, path: str) -> None:
        """Deletes a folder if it is empty, or a file that reports do not count."""
        if not self.dry_run:
            self._delete([path])

    def _delete(self, paths: Sequence[str]) -> int:
        failed = self.storage.delete_all(paths)
        for path, why in failed.items():
            if isinstance(why, Unavailable):
                raise why
            self.left += 1
            _LOG.warning("%s: could not delete %s, it stays as an orphan: %s", self.storage.location, path, why)
        return len(paths) - len(failed)
