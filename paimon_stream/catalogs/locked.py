"""The files of a table whose catalog has a lock that Java takes, too. Each put that publishes a
snapshot or a schema holds the lock, because Java publishes in two steps.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from paimon_stream import options as opt
from paimon_stream.options.option import duration
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.branch import PathPlace, StorageView
from paimon_stream.storage.location import KIND_OF, scheme_of

PUBLISHED: Final = re.compile(r"(?:branch/branch-([^/]+)/)?(?:snapshot/snapshot|schema/schema)-\d+")
"""The paths of the files that are put under the lock. The group is the branch; None for main."""
LONGEST_SLEEP: Final = opt.Option(
    "lock-check-max-sleep", duration, "8 s", "The longest wait between two looks."
)
LOCK_TIMEOUT: Final = opt.Option(
    "lock-acquire-timeout", duration, "8 min", "How long a lock is waited for, and lasts."
)


def is_lock_enabled(location: str, options: Mapping[str, str]) -> bool:
    """Whether the lock is taken. If `lock.enabled` is not set, it is taken on object stores, as in
    Java.
    """
    lock_enabled = opt.Option(
        "lock.enabled", opt.boolean, str(scheme_of(location) in KIND_OF), "Whether there is a lock."
    )
    return opt.Options(options).value(lock_enabled)


class StorageUnderLock(StorageView):
    """The files of a table. Callers use it as a `Storage`. It holds the lock while it puts a
    snapshot or a schema.
    """

    __slots__ = ()
    takes_lock = True

    def _place(self, path: str) -> PathPlace:
        return PathPlace(self.wrapped)

    def _lock_of_branch(self, branch: str | None) -> AbstractContextManager[None]:
        """A context in which this process has the lock of a branch. `branch` is None for main.
        Raises `CommitContended`.
        """
        raise NotImplementedError

    def put_if_absent(
        self,
        path: str,
        data: bytes,
    ) -> PutResult:
        """See `Storage.put_if_absent`. Raises `CommitContended` if another writer keeps the lock.
        Nothing is written then.
        """
        published = PUBLISHED.fullmatch(path)
        if published is None:
            return self.wrapped.put_if_absent(path, data)
        with self._lock_of_branch(published[1]):
            return self.wrapped.put_if_absent(path, data)

    def write(self, path: str, data: bytes) -> None:
        """See `Storage.write`. A rollback may replace a snapshot that a paused writer has created
        again. Raises `CommitContended` if another writer keeps the lock. Nothing is written then.
        """
        published = PUBLISHED.fullmatch(path)
        if published is None:
            self.wrapped.write(path, data)
            return
        with self._lock_of_branch(published[1]):
            self.wrapped.write(path, data)
