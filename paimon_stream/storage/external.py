"""Folders elsewhere in which data files of a table lie: its external roots (table-kinds.md §3). The storage of such a
table shows each root as one of the table's folders: what is below `file:/data` is also below
`_external_path/file%3A%2Fdata`. So what reads, writes or deletes data files by their paths needs no second storage."""

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import StorageView, branch_of, branch_storage, whole_of
from paimon_stream.storage.uri import open_beside

_SHOWN: Final = "_external_path/"


class ExternalStorage(StorageView):
    """The folder of a table, and its external roots. Callers see it as a `Storage` (`with_roots`). Roots that are not
    among `roots` are opened when they are first used."""

    __slots__ = ("_opened", "roots")

    def __init__(self, whole: Storage, roots: tuple[str, ...], opened: Mapping[str, Storage] | None = None) -> None:
        self.whole, self.roots, self._opened = whole, roots, {"": whole, **(opened or {})}

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may have no settings for stores of another kind than the table's.
        return ExternalStorage, (self.whole, self.roots, {one: self._storage(one) for one in self.roots})

    def _there(self, path: str) -> tuple[Storage, str, str]:
        root, _ = split_root(path)
        return self._storage(root), "", root

    def _storage(self, root: str) -> Storage:
        if root not in self._opened:
            self._opened[root] = open_beside(self.whole, unquote(root[len(_SHOWN) : -1]))
        return self._opened[root]


def with_roots(storage: Storage, roots: tuple[str, ...]) -> Storage:
    """The storage of a table or of one of its branches, which also shows these roots (`shown_root`)."""
    whole = whole_of(storage)
    if getattr(whole, "roots", None) == roots:
        return storage
    view = cast(Storage, ExternalStorage(whole.whole if isinstance(whole, ExternalStorage) else whole, roots))
    return view if whole is storage else branch_storage(view, branch_of(storage))


def shown_root(root: str) -> str:
    """The folder as which an external root is shown, with a slash at its end."""
    return f"{_SHOWN}{quote(root, safe='')}/"


def external_path(path: str) -> str | None:
    """The whole path of a file that lies outside the table, as `_EXTERNAL_PATH` has it; None for one inside."""
    root, inner = split_root(path)
    return f"{unquote(root[len(_SHOWN) : -1])}/{inner}" if root else None


def shown(path: str) -> str:
    """The path for messages: the whole one of a file outside the table."""
    return external_path(path) or path


def split_root(path: str) -> tuple[str, str]:
    """The folder as which an external root is shown (the table's own: ""), with a slash, and the path below it."""
    if not path.startswith(_SHOWN):
        return "", path
    root, _, inner = path[len(_SHOWN) :].partition("/")
    return f"{_SHOWN}{root}/", inner
