"""One snapshot with everything that it refers to, and what ends a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_stream.format.entries import IndexManifestEntry, ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from tests.simulation.rules import RULES

if TYPE_CHECKING:
    from tests.simulation.changing import Rows
    from tests.simulation.scheduler import Process

Token = tuple[str, int]
"""A batch: the commit user and the batch id. Or a piece of work: its actor and its number."""


class Violation(AssertionError):
    """Something that must never happen has happened. `rule` is one of `rules.py`."""

    def __init__(self, rule: str, what: str) -> None:
        assert rule in RULES, rule
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def token_of(name: str) -> Token | None:
    """The batch that a data file is of; None for files that nobody acknowledges. The file's name is
    `<user>-<batch>-<number>`, with dynamic buckets followed by a point and the bucket."""
    user, batch, _ = name.rsplit("-", 2)
    return None if batch == "x" else (stream_of(user), int(batch))


def stream_of(user: str) -> str:
    """Whose rows a commit user writes: a stream keeps its rows if its checkpoint is wiped."""
    return user.rstrip("0123456789")


@dataclass(eq=False)
class State:
    """One snapshot with everything that it refers to. `live` has the entries of its live files by
    name, `base` the names of those before its own changes, `files` all paths that a reader needs,
    `mentioned` the data files in its manifests, live or not. `written` are the files of writers
    whose rows are there, though a compaction may have put these into another file. `slept` says
    that its maker slept through a rollback, and `upsets` how often the line had lost something when
    it was made. `index` has the entries of index files. `commit` is the piece of work that made it,
    if its success is acknowledged, and `commits` has those of all snapshots on which this one is
    built, and its own. `rows` are those that it holds, where rows are changed.
    """

    snapshot: Snapshot
    live: dict[str, ManifestEntry]
    base: frozenset[str]
    files: frozenset[str]
    mentioned: frozenset[str]
    written: tuple[str, ...] = ()
    made_by: Process | None = None
    slept: bool = False
    upsets: int = 0
    rolled_back: bool = False
    order: tuple[str, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    commit: Token | None = None
    commits: frozenset[Token] = frozenset()
    rows: Rows | None = None

    @property
    def id(self) -> int:
        return self.snapshot.id

    @property
    def nonce(self) -> str:
        return self.snapshot.nonce

    def tokens(self) -> frozenset[Token]:
        """The batches whose rows are there, and the pieces of work that have their effect."""
        return self._batches | self.commits

    @cached_property
    def _batches(self) -> frozenset[Token]:
        return frozenset(tokens(self.written))


def tokens(names: Iterable[str]) -> set[Token]:
    """The batches that data files are of."""
    return {one for one in map(token_of, names) if one is not None}
