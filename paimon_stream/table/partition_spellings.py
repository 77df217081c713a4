"""Handles the folders of partitions by FLOAT or DOUBLE columns. The name of such a folder has
Java's text of the value. Before version 19, Java writes some values with more digits, for example
2.0E23 as 1.9999999999999998E23. So one value may have several folders. `SpelledStorage` shows all
of them as the folder that `Layout` names: reading, listing and deleting finds the files of each
folder, and writing uses a folder that exists.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

import numpy as np

from paimon_stream.errors import NotFound, PaimonStreamError
from paimon_stream.format.names import is_partition_folder
from paimon_stream.format.partition_path import escape, unescape, value_text
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.branch import (
    BY_PATH,
    StorageView,
    branch_of,
    branch_storage,
    whole_of,
)
from paimon_stream.storage.external import split_root
from paimon_stream.table.layout import Layout

_NUMBER: Final = re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")
_FIRST_FOUND: Final = {"read", "open_input"}
_WRITES: Final = {"write", "write_hint", "put_if_absent", "open_output"}

T = TypeVar("T")
Places = dict[str, list[str]]
"""The folders of each partition folder, as far as they were asked for."""


def with_spellings(storage: Storage, layout: Layout) -> Storage:
    """The storage of a table or of one of its branches. If a partition key is FLOAT or DOUBLE, the
    storage shows all folders of a value as one.
    """
    if not any(type_.is_float for type_ in layout.partition_types):
        return storage
    whole_storage = whole_of(storage)
    keys = tuple(zip(layout.partition_keys, layout.partition_types, strict=True))
    view = cast(Storage, SpelledStorage(whole_storage, layout.directory, keys))
    if whole_storage is storage:
        return view
    return branch_storage(view, branch_of(storage))


def without_spellings(storage: Storage) -> Storage:
    """The storage that shows each folder under its own name."""
    whole_storage = whole_of(storage)
    if not isinstance(whole_storage, SpelledStorage):
        return storage
    if whole_storage is storage:
        return whole_storage.wrapped
    return branch_storage(whole_storage.wrapped, branch_of(storage))


class SpelledStorage(StorageView):
    """A storage that shows all folders of a partition value as one folder. `with_spellings` returns
    it as a `Storage`. A path without a FLOAT or DOUBLE partition causes no further requests. If a
    file is new, or is not where `Layout` says, the storage lists one folder for each FLOAT or
    DOUBLE in the path.

    Attributes:
        wrapped: the storage that shows each folder under its own name.
        directory: the folder of the partitions.
        keys: the names and types of the partition columns.
    """

    __slots__ = ("directory", "keys")

    def __init__(
        self, wrapped: Storage, directory: str, keys: tuple[tuple[str, DataType], ...]
    ) -> None:
        self.wrapped = wrapped
        self.directory = directory
        self.keys = keys

    def __reduce__(self) -> tuple[Any, ...]:
        return SpelledStorage, (self.wrapped, self.directory, self.keys)

    def __getattr__(self, name: str) -> Any:
        of_wrapped = getattr(self.wrapped, name)
        if name in _FIRST_FOUND:
            return partial(self._first_found, of_wrapped)
        if name in _WRITES:
            return partial(self._written, of_wrapped)
        if name in BY_PATH or name in ("write_all", "delete_all"):
            raise AttributeError(name)  # the class has a method for each of the others
        return of_wrapped

    def _written(self, write: Callable[..., T], path: str, *arguments: Any) -> T:
        """Calls `write` for the path, and returns its result. If a folder of the partition value
        exists, the path leads into that folder.
        """
        return write(self._places(path)[0], *arguments)

    def _first_found(self, find: Callable[..., T], path: str, *arguments: Any) -> T:
        """What `find` returns for the first folder that has the file. No file is in two folders of
        one partition value.
        """
        try:
            return find(path, *arguments)
        except NotFound:
            for place in self._places(path):
                if place == path:
                    continue
                try:
                    return find(place, *arguments)
                except NotFound:
                    continue
            raise

    def stat(self, path: str) -> FileStat:
        """The size and times of the file, under the path that the caller asked for. Raises
        `NotFound`.
        """
        return replace(self._first_found(self.wrapped.stat, path), path=path)

    def exists(self, path: str) -> bool:
        """Whether the file is in one of the folders of its partition value."""
        return self.wrapped.exists(path) or any(map(self.wrapped.exists, self._places(path)))

    def is_link(self, path: str) -> bool:
        """Whether the path is a link in one of the folders of its partition value."""
        return any(map(self.wrapped.is_link, self._places(path)))

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """The files of all folders of the partition value, as if they were in `folder`."""
        files = [
            replace(file, path=folder + file.path.removeprefix(place))
            for place in self._places(folder)
            for file in self.wrapped.list_files(place, prefix)
        ]
        return sorted(files, key=lambda file: file.path)

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The names of the files in all folders of the partition value."""
        return sorted(
            name
            for place in self._places(folder)
            for name in self.wrapped.list_names(place, prefix)
        )

    def list_folders(self, folder: str) -> list[str]:
        """The folders in all folders of the partition value. Folders of one value count as one."""
        below = f"{folder}/" if folder else ""
        return sorted(
            {
                self._shown(below + name)[len(below) :]
                for place in self._places(folder)
                for name in self.wrapped.list_folders(place)
            }
        )

    def list_pages(self, folder: str) -> Iterator[list[FileStat]]:
        """The files of all folders of the partition value, as if they were in `folder`."""
        for place in self._places(folder):
            for page in self.wrapped.list_pages(place):
                yield [replace(file, path=folder + file.path.removeprefix(place)) for file in page]

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        """The files below all folders of the partition value, under the paths that `Layout` gives
        them.
        """
        for place in self._places(folder):
            for page in self.wrapped.list_below(place):
                yield [replace(file, path=self._shown(file.path)) for file in page]

    def delete(self, path: str) -> None:
        """Deletes the file, or the empty folder, in every folder that spells this partition."""
        for place in self._places(path):
            self.wrapped.delete(place)

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        """Deletes each file in all folders of its partition value. The result has the errors by the
        paths that the caller asked for.
        """
        known = Places()
        shown = {place: path for path in paths for place in self._places(path, known)}
        errors = self.wrapped.delete_all(list(shown))
        return {shown[place]: error for place, error in errors.items()}

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes each file into an existing folder of its partition value, if there is one."""
        known = Places()
        self.wrapped.write_all([(self._places(path, known)[0], data) for path, data in files])

    def _split(self, path: str) -> tuple[str, list[str], str]:
        """The part of the path above the partition, the folders of the partition, and the part
        below them.
        """
        root, inner = split_root(path)
        start = f"{self.directory}/" if self.directory else ""
        if not inner.startswith(start):
            return path, [], ""
        parts = inner[len(start) :].split("/")
        folders: list[str] = []
        for (key, _), part in zip(self.keys, parts, strict=False):
            if not is_partition_folder(part, key):
                break
            folders.append(part)
        return root + start, folders, "/".join(parts[len(folders) :])

    def _places(self, path: str, known: Places | None = None) -> list[str]:
        """The path in each of the folders of its partition value, with the folder that `Layout`
        names first. If no folder exists, only the path that `Layout` names.

        Args:
            path: a path as `Layout` names it.
            known: the listings of earlier calls, to which this call adds its own.
        """
        start, folders, rest = self._split(path)
        known = Places() if known is None else known
        places = [start]
        for level, (name, (_, type_)) in enumerate(zip(folders, self.keys, strict=False)):
            above = "/".join(folders[: level + 1])
            if start + above not in known:
                known[start + above] = [
                    f"{place}{spelled}/"
                    for place in places
                    for spelled in self._spellings(place, level, name, type_)
                ]
            places = known[start + above]
        if not rest:
            return [place.removesuffix("/") for place in places]
        return [f"{place}{rest}" for place in places]

    def _spellings(self, place: str, level: int, name: str, type_: DataType) -> list[str]:
        """The names of the folders in `place` that have the same value as `name`. `name` itself
        comes first, if its folder exists. If no folder exists, `name` is the only result.
        """
        if not type_.is_float or self._number(level, name) is None:
            return [name]
        listed = self.wrapped.list_folders(place.removesuffix("/"))
        spellings = sorted(other for other in listed if self._canonical(level, other) == name)
        if name in spellings:
            spellings.remove(name)
            return [name, *spellings]
        return spellings or [name]

    def _shown(self, path: str) -> str:
        """The path, with the folder names that `Layout` gives to partitions."""
        start, folders, rest = self._split(path)
        names = [self._canonical(level, folder) for level, folder in enumerate(folders)]
        if rest:
            names.append(rest)
        return start + "/".join(names)

    def _canonical(self, level: int, name: str) -> str:
        """The name that `Layout` gives to the folder `name` of a partition value."""
        key, type_ = self.keys[level]
        if not type_.is_float:
            return name
        number = self._number(level, name)
        if number is None:
            return name
        return f"{escape(key)}={escape(value_text(type_, number))}"

    def _number(self, level: int, name: str) -> float | None:
        """The FLOAT or DOUBLE value that a partition folder's name has; None if the name has no
        number.
        """
        key, type_ = self.keys[level]
        text = unescape(name.removeprefix(f"{escape(key)}="))
        if not is_partition_folder(name, key) or not _NUMBER.fullmatch(text):
            return None
        number = float(text)
        if type_.root is TypeRoot.FLOAT:
            with np.errstate(over="ignore"):
                number = float(np.float32(number))
        return number if math.isfinite(number) else None
