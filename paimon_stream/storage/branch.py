"""A branch of a table as a storage: its own metadata, and all other files, which it shares
(table-kinds.md §6). What opens a table over such a view reads and writes that branch. The folders
of a branch are in `branch/branch-<name>/`. Besides those of Java that is our own one, so each
branch has its own streams.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote

from paimon_stream.errors import InvalidOption, PaimonStreamError
from paimon_stream.options import Arguments
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.location import scheme_of, shown_location

MAIN: Final = "main"
_FOLDER: Final = "branch"
_PREFIX: Final = "branch-"
_NOTE: Final = "branch."
_OWN_FOLDER: Final = "_paimon_stream"
_MARK: Final = "$branch_"
_OWN: Final = frozenset(("schema", "snapshot", "tag", "changelog", "consumer", _OWN_FOLDER))
BY_PATH: Final = (
    "read",
    "write",
    "write_hint",
    "put_if_absent",
    "list_files",
    "list_names",
    "list_folders",
    "list_below",
    "stat",
    "exists",
    "delete",
    "is_link",
    "open_output",
    "open_input",
)
"""The methods of a storage whose first argument is a path."""
_LONGEST: Final = 240
_NO_NAME: Final = re.compile(r"[\s\0/\\$?#\ud800-\udfff]|\A(main|[0-9]*)\Z")


class StorageView:
    """Shows `whole`, and perhaps other storages, under other paths. The method `_there` of a
    subclass says in which storage a path is, how it begins there, and how here instead.
    """

    __slots__ = ("whole",)
    whole: Storage

    def __getattr__(self, name: str) -> Any:
        if name in ("write_all", "delete_all"):
            return partial(self._all, name)
        if name not in BY_PATH:
            return getattr(self.whole, name)

        def call(path: str, *others: Any, **named: Any) -> Any:
            storage, there, here = self._there(path)
            found = getattr(storage, name)(there + path[len(here) :], *others, **named)
            if there == here:
                return found
            back = partial(_moved, there, here)
            return map(back, found) if name == "list_below" else back(found)

        return call

    def _all(self, name: str, items: Sequence[Any]) -> dict[str, PaimonStreamError]:
        """Calls the method of each storage once, with its paths, or pairs of path and content."""
        found: dict[str, tuple[Storage, dict[str, str], list[Any]]] = {}
        for item in items:
            path = item if isinstance(item, str) else item[0]
            storage, there, here = self._there(path)
            moved = there + path[len(here) :]
            _, paths, group = found.setdefault(here, (storage, {}, []))
            paths[moved] = path
            group.append(moved if item is path else (moved, item[1]))
        failed = self.whole.together(
            [partial(getattr(one, name), group) for one, _, group in found.values()]
        )
        of_paths = zip(found.values(), failed, strict=True)
        return {
            paths[one]: why
            for (_, paths, _), wrong in of_paths
            for one, why in (wrong or {}).items()
        }


def _moved(there: str, here: str, found: Any) -> Any:
    if isinstance(found, list):
        return [_moved(there, here, one) for one in found]
    return (
        replace(found, path=here + found.path.removeprefix(there))
        if isinstance(found, FileStat)
        else found
    )


class BranchStorage(StorageView):
    """The files of one branch of the table in `whole`. Callers see it as a `Storage`
    (`branch_storage`).
    """

    __slots__ = ("branch", "folder")

    def __init__(self, whole: Storage, branch: str) -> None:
        self.whole = whole
        self.branch = branch
        self.folder = branch_folder(branch)

    def __reduce__(self) -> tuple[Any, ...]:
        return BranchStorage, (self.whole, self.branch)

    @property
    def location(self) -> str:
        """The location that opens the branch."""
        return f"{self.whole.location}{_MARK}{self.branch}"

    def is_noted(self) -> bool:
        """Whether the branch is being made or deleted."""
        return is_noted(self.whole, self.branch)

    def _there(self, path: str) -> tuple[Storage, str, str]:
        return self.whole, self.folder if path.partition("/")[0] in _OWN else "", ""


def branch_storage(whole: Storage, branch: str) -> Storage:
    """The branch of the table in `whole`."""
    return cast(Storage, BranchStorage(whole, branch))


def branch_of(storage: Storage) -> str:
    """The name of the branch that the storage shows; `main` for the table itself."""
    return storage.branch if isinstance(storage, BranchStorage) else MAIN


def whole_of(storage: Storage) -> Storage:
    """The table's folder with all branches, whichever of them the storage shows."""
    return storage.whole if isinstance(storage, BranchStorage) else storage


def is_served(storage: Storage) -> bool:
    """Whether the server of a catalog publishes the table's snapshots, and owns its history."""
    return getattr(storage, "served", False)


def branch_folder(branch: str) -> str:
    """The folder of a branch, with a slash at its end."""
    return f"{_FOLDER}/{_PREFIX}{branch}/"


def branch_names(storage: Storage) -> list[str]:
    """The names of all branches but main, of which one may be half made or half deleted."""
    names = whole_of(storage).list_folders(_FOLDER)
    return [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]


def branch_note(branch: str) -> str:
    """The file beside the table that exists while a branch is being made or deleted. No commit
    user's folder has this name, for none has a dot (`user_folder` in table/layout.py).
    """
    return f"{_OWN_FOLDER}/{_NOTE}{branch}"


def older_branch_note(branch: str) -> str:
    """Where releases up to 0.1.0 wrote that file; commit user `branch-<name>` has a folder there."""
    return f"{_OWN_FOLDER}/{_PREFIX}{branch}"


def notes_of_branch(whole: Storage, branch: str) -> list[str]:
    """The files that say that the branch is being made or deleted, also those of earlier releases.
    Folders of commit users are none. Raises `StorageError`.
    """
    wanted = (branch_note(branch), older_branch_note(branch))
    return [one.path for one in whole.list_files(_OWN_FOLDER, _FOLDER) if one.path in wanted]


def is_noted(whole: Storage, branch: str) -> bool:
    """Whether the branch is being made or deleted. One request. Raises `StorageError`."""
    return bool(notes_of_branch(whole, branch))


def check_is_main(storage: Storage, why: str) -> None:
    """Raises `InvalidOption` for a branch other than main. `why` ends the message."""
    if branch_of(storage) != MAIN:
        text = f"{storage.location} is a branch: {why}. Nothing was changed."
        raise InvalidOption(text, option="branch", table=storage.location)


def check_branch(name: str, location: str) -> None:
    """Raises `InvalidOption` for a name that no branch may have (table-kinds.md R6.1)."""
    if _NO_NAME.search(name) or len(name.encode("utf-8", "replace")) > _LONGEST:
        rule = "It is neither empty nor main nor only digits, fits into the name of a file, and has no blank"
        cure = "and none of / \\ $ ? #. Nothing was changed. Take another name."
        text = f"the name of the branch is not allowed. {rule} {cure}"
        raise InvalidOption(text, option="branch").of_table(location)


def split_location(location: str) -> tuple[str, str | None]:
    """The table's folder, and the branch if the location ends in `$branch_<name>`. Raises
    `InvalidOption`.
    """
    folder, slash, last = location.rstrip("/").rpartition("/")
    table, mark, name = last.partition(_MARK)
    if not mark:
        return location, None
    if name != MAIN:
        check_branch(name, shown_location(location))
    return f"{folder}{slash}{table}", None if name == MAIN else name


def with_branch(location: Any, branch: str | None) -> Any:
    """The location of a branch of the table. Raises `InvalidOption` for a bad name, or another
    branch's location.
    """
    if (
        branch is None
        or not isinstance(location, str | os.PathLike)
        or not (text := os.fspath(location)).strip()
    ):
        return location  # `open_storage` judges it
    shown = shown_location(text)
    Arguments(shown).text("branch", branch)
    if split_location(text)[0] != text:
        if (named := split_location(text)[1] or MAIN) != branch:
            why = f"{shown} is branch {named!r}, and branch {branch!r} is given. Give one of them."
            raise InvalidOption(why, option="branch", table=shown)
        return location
    if branch == MAIN:
        return location
    check_branch(branch, shown)
    return f"{text.rstrip('/')}{_MARK}{quote(branch, safe='') if scheme_of(text) == 'file' else branch}"
