"""Folders elsewhere in which data files of a table lie: its external roots (table-kinds.md §3).

The storage of such a table shows each root as one of the table's folders: what is below `file:/data` is also below
`_external_path/file%3A%2Fdata`. So what reads, writes or deletes data files by their paths needs no second storage.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from paimon_stream.errors import PaimonStreamError
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.branch import BY_PATH, branch_of, branch_storage, whole_of
from paimon_stream.storage.uri import open_beside

_SHOWN: Final = "_external_path/"


class ExternalStorage:
    """The folder of a table, and its external roots. Callers see it as a `Storage` (`with_roots`). Roots that are not
    among `roots` are opened when they are first used."""

    __slots__ = ("_opened", "roots", "whole")

    def __init__(self, whole: Storage, roots: Iterable[str], opened: Mapping[str, Storage] | None = None) -> None:
        self.whole, self.roots, self._opened = whole, tuple(roots), {"": whole, **(opened or {})}

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may have no settings for stores of another kind than the table's.
        return ExternalStorage, (
            self.whole,
            self.roots,
            {one: self._storage(one) for one in map(shown_root, self.roots)},
        )

    def __getattr__(self, name: str) -> Any:
        if name not in BY_PATH:
            return getattr(self.whole, name)

        def call(path: str, *others: Any, **named: Any) -> Any:
            root, inner = split_root(path)
            found = getattr(self._storage(root), name)(inner, *others, **named)
            return map(partial(_shown, root), found) if name == "list_below" else _shown(root, found)

        return call

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """What `Storage.write_all` does."""
        found: dict[str, list[tuple[str, bytes]]] = {}
        for path, data in files:
            root, inner = split_root(path)
            found.setdefault(root, []).append((inner, data))
        self.whole.together([partial(self._storage(root).write_all, some) for root, some in found.items()])

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        """What `Storage.delete_all` does."""
        found: dict[str, list[str]] = {}
        for root, inner in map(split_root, paths):
            found.setdefault(root, []).append(inner)
        failed = self.whole.together([partial(self._storage(root).delete_all, some) for root, some in found.items()])
        return {root + path: why for root, one in zip(found, failed, strict=True) for path, why in one.items()}

    def _storage(self, root: str) -> Storage:
        found = self._opened.get(root)
        if found is None:
            found = self._opened[root] = open_beside(self.whole, unquote(root[len(_SHOWN) : -1]))
        return found


def with_roots(storage: Storage, roots: Iterable[str]) -> Storage:
    """The storage of a table or of one of its branches, which also shows these external roots."""
    whole = whole_of(storage)
    view = cast(Storage, ExternalStorage(whole.whole if isinstance(whole, ExternalStorage) else whole, roots))
    return view if whole is storage else branch_storage(view, branch_of(storage))


def base_of(storage: Storage) -> Storage:
    """The table's own folder with all branches, whatever the storage shows besides."""
    whole = whole_of(storage)
    return whole.whole if isinstance(whole, ExternalStorage) else whole


def shown_root(root: str) -> str:
    """The folder as which an external root is shown, with a slash at its end."""
    return f"{_SHOWN}{quote(root, safe='')}/"


def external_path(path: str) -> str | None:
    """The whole path of a file that lies outside the table, as `_EXTERNAL_PATH` has it; None for one inside."""
    root, inner = split_root(path)
    return f"{unquote(root[len(_SHOWN) : -1])}/{inner}" if root else None


def split_root(path: str) -> tuple[str, str]:
    """The folder, with a slash at its end, as which an external root is shown, "" for the table's own one, and the path
    below it."""
    if not path.startswith(_SHOWN):
        return "", path
    root, _, inner = path[len(_SHOWN) :].partition("/")
    return f"{_SHOWN}{root}/", inner


def _shown(root: str, found: Any) -> Any:
    if isinstance(found, list):
        return [_shown(root, one) for one in found]
    return replace(found, path=root + found.path) if isinstance(found, FileStat) else found
