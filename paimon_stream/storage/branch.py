"""Shows a branch of a table as a storage. The storage shows the branch's own metadata, and all
other files, which the branch shares with the table (table-kinds.md §6). A table that is opened on
such a storage reads and writes the branch. The folders of a branch are in `branch/branch-<name>/`:
the same folders as in Java, and this package's own folder. So each branch has its own streams.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, cast
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
    "list_pages",
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
"""The most bytes of a branch's name."""
_NO_NAME: Final = re.compile(r"[\s\0/\\$?#\ud800-\udfff]|\A(main|[0-9]*)\Z")


class PathPlace(NamedTuple):
    """The real place of a file that a view shows under another path.

    Attributes:
        storage: the storage that has the file.
        there: the beginning of the path in that storage, in place of `here`.
        here: the beginning of the path in the view.
    """

    storage: Storage
    there: str = ""
    here: str = ""

    def path_there(self, path: str) -> str:
        """The path in the storage for a path in the view."""
        return self.there + path[len(self.here) :]

    def path_here(self, path: str) -> str:
        """The path in the view for a path in the storage."""
        return self.here + path.removeprefix(self.there)


class StorageView:
    """Shows the storage `wrapped`, and perhaps other storages, under other paths. The method
    `_place` of a subclass returns the real place of a path.
    """

    __slots__ = ("wrapped",)
    wrapped: Storage

    def __getattr__(self, name: str) -> Any:
        if name in ("write_all", "delete_all"):
            return partial(self._all, name)
        if name not in BY_PATH:
            return getattr(self.wrapped, name)

        def call(path: str, *arguments: Any, **named_arguments: Any) -> Any:
            place = self._place(path)
            result = getattr(place.storage, name)(
                place.path_there(path), *arguments, **named_arguments
            )
            if place.there == place.here:
                return result
            if name in ("list_pages", "list_below"):
                return map(partial(_with_path_here, place), result)
            return _with_path_here(place, result)

        return call

    def _all(self, name: str, items: Sequence[Any]) -> dict[str, PaimonStreamError]:
        """Calls the method `name`, which is `write_all` or `delete_all`, of each storage once, with
        the items whose paths are in that storage. An item is a path, or a pair of path and content.
        Returns the errors by the paths in the view.
        """
        groups: dict[str, _PathGroup] = {}
        for item in items:
            path, *content = [item] if isinstance(item, str) else item
            place = self._place(path)
            path_there = place.path_there(path)
            group = groups.setdefault(place.here, _PathGroup(place.storage, {}, []))
            group.paths_here[path_there] = path
            group.items.append((path_there, *content) if content else path_there)
        failures_of_groups = self.wrapped.together(
            [partial(getattr(group.storage, name), group.items) for group in groups.values()]
        )
        failed: dict[str, PaimonStreamError] = {}
        for group, failures in zip(groups.values(), failures_of_groups, strict=True):
            for path_there, error in (failures or {}).items():
                failed[group.paths_here[path_there]] = error
        return failed


class _PathGroup(NamedTuple):
    """The items of one call of `write_all` or `delete_all` that are in one storage.

    Attributes:
        storage: the storage.
        paths_here: the paths in the view, by the paths in the storage.
        items: the paths in the storage, or pairs of path and content.
    """

    storage: Storage
    paths_here: dict[str, str]
    items: list[Any]


def _with_path_here(place: PathPlace, result: Any) -> Any:
    """The result of a storage's method, with the paths of the view in its `FileStat`s."""
    if isinstance(result, list):
        return [_with_path_here(place, entry) for entry in result]
    if isinstance(result, FileStat):
        return replace(result, path=place.path_here(result.path))
    return result


class BranchStorage(StorageView):
    """The files of one branch of the table in `wrapped`. `branch_storage` returns it as a
    `Storage`.
    """

    __slots__ = ("branch", "folder")

    def __init__(self, wrapped: Storage, branch: str) -> None:
        self.wrapped = wrapped
        self.branch = branch
        self.folder = branch_folder(branch)

    def __reduce__(self) -> tuple[Any, ...]:
        return BranchStorage, (self.wrapped, self.branch)

    @property
    def location(self) -> str:
        """The location that opens the branch."""
        return f"{self.wrapped.location}{_MARK}{self.branch}"

    def is_noted(self) -> bool:
        """Whether the branch is being made or deleted."""
        return is_noted(self.wrapped, self.branch)

    def _place(self, path: str) -> PathPlace:
        if path.partition("/")[0] in _OWN:
            return PathPlace(self.wrapped, there=self.folder)
        return PathPlace(self.wrapped, there="")


def branch_storage(table: Storage, branch: str) -> Storage:
    """The storage of a branch of the table in `table`."""
    return cast(Storage, BranchStorage(table, branch))


def branch_of(storage: Storage) -> str:
    """The name of the branch that the storage shows; `main` for the table itself."""
    return storage.branch if isinstance(storage, BranchStorage) else MAIN


def whole_of(storage: Storage) -> Storage:
    """The storage of the table's folder with all branches. `storage` may show any of them."""
    return storage.wrapped if isinstance(storage, BranchStorage) else storage


def is_served(storage: Storage) -> bool:
    """Whether the server of a catalog publishes the table's snapshots, and owns its history."""
    return getattr(storage, "served", False)


def branch_folder(branch: str) -> str:
    """The folder of a branch, with a slash at its end."""
    return f"{_FOLDER}/{_PREFIX}{branch}/"


def branch_names(storage: Storage) -> list[str]:
    """The names of all branches except main, including branches whose creation or deletion was
    interrupted.
    """
    names = whole_of(storage).list_folders(_FOLDER)
    return [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]


def branch_note(branch: str) -> str:
    """The path of the note that exists while a branch is being made or deleted. No commit user's
    folder has this name, because the names of these folders have no dot (`user_folder` in
    table/layout.py).
    """
    return f"{_OWN_FOLDER}/{_NOTE}{branch}"


def older_branch_note(branch: str) -> str:
    """The path at which releases up to 0.1.0 wrote the note of `branch_note`. The folder of a
    commit user `branch-<name>` has the same path.
    """
    return f"{_OWN_FOLDER}/{_PREFIX}{branch}"


def notes_of_branch(table: Storage, branch: str) -> list[str]:
    """The notes that the branch is being made or deleted, including those of earlier releases.
    Folders of commit users are not among them. Raises `StorageError`.
    """
    notes = (branch_note(branch), older_branch_note(branch))
    return [file.path for file in table.list_files(_OWN_FOLDER, _FOLDER) if file.path in notes]


def is_noted(table: Storage, branch: str) -> bool:
    """Whether the branch is being made or deleted. This takes one request. Raises
    `StorageError`.
    """
    return bool(notes_of_branch(table, branch))


def check_is_main(storage: Storage, reason: str) -> None:
    """Raises `InvalidOption` for a branch other than main. `reason` says in the message why main is
    needed.
    """
    if branch_of(storage) != MAIN:
        raise InvalidOption(
            f"{storage.location} is a branch: {reason}. Nothing was changed.",
            option="branch",
            table=storage.location,
        )


def check_branch(name: str, location: str) -> None:
    """Raises `InvalidOption` for a name that no branch may have (table-kinds.md R6.1)."""
    if _NO_NAME.search(name) or len(name.encode("utf-8", "replace")) > _LONGEST:
        raise InvalidOption(
            "the name of the branch is not allowed. It is neither empty nor main nor only digits, "
            "fits into the name of a file, and has no blank and none of / \\ $ ? #. "
            "Nothing was changed. Take another name.",
            option="branch",
        ).of_table(location)


def split_location(location: str) -> tuple[str, str | None]:
    """The table's folder, and the branch if the location ends in `$branch_<name>`; None for main.
    Raises `InvalidOption` for a name that no branch may have.
    """
    folder, slash, last = location.rstrip("/").rpartition("/")
    table, mark, name = last.partition(_MARK)
    if not mark:
        return location, None
    branch = None
    if name != MAIN:
        check_branch(name, shown_location(location))
        branch = name
    return f"{folder}{slash}{table}", branch


def with_branch(location: Any, branch: str | None) -> Any:
    """The location of a branch of the table; the location itself if `branch` is None. Raises
    `InvalidOption` for a bad name, or if the location names another branch.
    """
    if branch is None or not isinstance(location, str | os.PathLike):
        return location
    path = os.fspath(location)
    if not path.strip():
        return location  # `open_storage` judges it
    shown = shown_location(path)
    Arguments(shown).text("branch", branch)
    table, branch_in_path = split_location(path)
    if table != path:
        if (branch_in_path or MAIN) != branch:
            raise InvalidOption(
                f"{shown} is branch {branch_in_path or MAIN!r}, and branch {branch!r} is given. "
                "Give one of them.",
                option="branch",
                table=shown,
            )
        return location
    if branch == MAIN:
        return location
    check_branch(branch, shown)
    # The path of a file URI is percent-decoded when it is opened.
    name = quote(branch, safe="") if scheme_of(path) == "file" else branch
    return f"{path.rstrip('/')}{_MARK}{name}"
