"""What an operation touches, and which two operations depend on each other: those whose order can
be seen. All others may change places without a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

READ: Final = "read"
LOOK: Final = "look"
"""It sees whether the file is there, and nothing of what is in it."""
MAKE: Final = "make"
REMOVE: Final = "remove"
REPLACE: Final = "replace"
LIST: Final = "list"
NONE: Final = "nothing"

CHANGES: Final = frozenset({MAKE, REMOVE, REPLACE})

FILES: Final = "files"
"""A listing that shows sizes and times, so also that a file was replaced."""
NAMES: Final = "names"
FOLDERS: Final = "folders"
BELOW: Final = "below"
"""A listing of all files below a folder, with sizes and times."""


@dataclass(frozen=True, slots=True)
class Access:
    """One path and what happens to it. A listing has a `path` that is a folder, how it lists, and
    the `prefix` of the names that it shows. What the server of a catalog does in one step is
    several accesses: the others are `also`.
    """

    kind: str
    path: str
    how: str = ""
    prefix: str = ""
    also: tuple[Access, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether somebody can see afterwards that it happened."""
        return self.kind in CHANGES or any(one.changes for one in self.also)


NOTHING: Final = Access(NONE, "")


def dependent(one: Access, other: Access) -> bool:
    """Whether the order of two operations can be seen."""
    if one.also or other.also:
        return any(
            _dependent(mine, theirs) for mine in (one, *one.also) for theirs in (other, *other.also)
        )
    return _dependent(one, other)


def _dependent(one: Access, other: Access) -> bool:
    if one.kind == LIST:
        return other.kind in CHANGES and _shows(one, other)
    if other.kind == LIST:
        return one.kind in CHANGES and _shows(other, one)
    if one.path != other.path or not (one.kind in CHANGES or other.kind in CHANGES):
        return False
    return {one.kind, other.kind} != {LOOK, REPLACE}


def _shows(listing: Access, change: Access) -> bool:
    """Whether a listing looks different after a change."""
    if change.kind == REPLACE and listing.how not in (FILES, BELOW):
        return False
    folder = listing.path
    parent, _, name = change.path.rpartition("/")
    if listing.how in (FILES, NAMES):
        return parent == folder and name.startswith(listing.prefix)
    return folder == "" or parent == folder or parent.startswith(f"{folder}/")
