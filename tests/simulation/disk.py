"""A disk: unlike an object store, it has no file and folder of one name."""

from __future__ import annotations

from paimon_stream.errors import Unavailable
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage


class Disk(MemoryStorage):
    """Files in memory that lie in folders, as `LocalStorage` has them."""

    __slots__ = ()

    def write(self, path: str, data: bytes) -> None:
        self._check(path)
        if self._is_folder(path):
            raise Unavailable(f"Cannot write {path}: it is a folder.", path=path)
        super().write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        self._check(path)
        return PutResult.EXISTS if self._is_folder(path) else super().put_if_absent(path, data)

    def _is_folder(self, path: str) -> bool:
        return any(f"{folder}/".startswith(f"{path}/") for folder in self._store.folders)

    def _check(self, path: str) -> None:
        """A file is no folder that could hold this one."""
        above = path.rpartition("/")[0]
        while above:
            if self.exists(above):
                raise Unavailable(f"Cannot write {path}: {above} is a file.", path=path)
            above = above.rpartition("/")[0]
