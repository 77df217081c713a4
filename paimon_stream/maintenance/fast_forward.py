"""Fast forward: main becomes what a branch is (table-kinds.md §6). Readers of main see states that main or the branch
had, whenever it is killed, and the same call completes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import cast

from paimon_stream.errors import CommitContended, IncompatibleSchema, NotFound
from paimon_stream.maintenance.branches import WHERE
from paimon_stream.maintenance.pins import read_pins, refuse_while_pinned, under_way
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.rollback_target import Target
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import BranchStorage, branch_names, check_branch, check_is_main
from paimon_stream.table.layout import LATEST_HINT, schema_path, snapshot_path, tag_path
from paimon_stream.table.schema import SchemaStore, no_such_branch
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardReport(Report):
    """What a fast forward to `snapshot` did to main: the snapshots that were `added` after `kept`, and those, with
    tags, that were `removed`. `streams` are as in the report of a rollback."""

    location: str
    branch: str
    snapshot: int
    kept: int | None
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    streams: Mapping[str, int] = field(default_factory=dict, hash=False)
    dry_run: bool = False


def fast_forward(
    table: Table, name: str, *, dry_run: bool = False, take_over: bool = False, runtime: Runtime | None = None
) -> ForwardReport:
    """Makes main what a branch is, as `PaimonTable.fast_forward` says, and raises the same errors."""
    used = table.storage
    check_is_main(used, WHERE)
    check_branch(name, used.location)
    run = _Forward(used, BranchStorage(used, name), runtime)
    target = run.target()
    below = [one for one in run.ours.ids() if one < target.snapshot.id] if target.kept_by else []
    run.prepare(target, () if dry_run else below, dry_run, take_over)
    rolled = rollback_to(table, target, dry_run=dry_run, take_over=take_over, runtime=runtime)
    if not dry_run:
        run.add(target.snapshot.id)
    return ForwardReport(
        location=used.location,
        branch=name,
        snapshot=run.ids[-1],
        kept=None if target.kept_by else target.snapshot.id,
        added=tuple(one for one in run.ids if target.kept_by or one > target.snapshot.id),
        removed=(*below, *rolled.snapshots),
        tags=rolled.tags,
        streams=rolled.streams,
        dry_run=dry_run,
    )


class _Forward:
    """One fast forward of main to a branch. `ids` are those of the branch's snapshots, without a gap."""

    def __init__(self, main: Storage, branch: BranchStorage, runtime: Runtime | None) -> None:
        self.main, self.branch = main, cast(Storage, branch)
        self.ours, self.theirs = SnapshotStore(main, runtime), SnapshotStore(self.branch, runtime)
        if branch.is_noted() or branch.branch not in branch_names(main):
            raise no_such_branch(branch)
        ids = self.theirs.ids()
        self.ids = [one for place, one in enumerate(ids, 1) if ids[-1] - one == len(ids) - place]
        if not ids:
            text = f"{branch.location} has no snapshot that main could get. Nothing was changed. Write to it first."
            raise NotFound(text, table=main.location, branch=branch.branch)

    def target(self) -> Target:
        """The newest snapshot that both have, or the oldest of the branch, which is then restored in main."""
        for one in reversed(self.ids):
            theirs, mine = self.theirs.find(one), self.ours.find(one)
            if theirs is not None and mine is not None and theirs.nonce == mine.nonce:
                return Target(snapshot=mine)
        oldest = self.theirs.get(self.ids[0])
        return Target(snapshot=oldest, kept_by=f"{cast(BranchStorage, self.branch).folder}{snapshot_path(oldest.id)}")

    def prepare(self, target: Target, below: Sequence[int], dry_run: bool, take_over: bool) -> None:
        """Refuses what cannot be forwarded. Removes the snapshots `below` a target that main does not have: they are
        not what the target was built on, so no expiry may conclude anything from them later."""
        refuse_while_pinned(self.branch, "nothing was forwarded")
        nonce = target.snapshot.nonce
        foreign = [one for one in read_pins(self.main) if one.snapshot is None or one.snapshot.nonce != nonce]
        if foreign and not take_over:
            raise under_way(self.main, foreign, "nothing was forwarded")
        same, mine, _ = self._schemas()
        if target.snapshot.schema_id >= same:
            if mine[same:]:
                raise IncompatibleSchema(
                    f"{self.main.location} and {self.branch.location} share no snapshot, and their schemas differ from "
                    f"schema {same} on. Nothing was changed. Append the rows of the branch to the table.",
                    table=self.main.location,
                    schema=same,
                )
            if not dry_run:
                self._copy_schemas()
        for one in below:
            self.main.delete(snapshot_path(one))

    def add(self, kept: int) -> None:
        """Gives main, whose newest snapshot is `kept`, what the branch has besides it."""
        try:
            self._copy_schemas()
            for path in (snapshot_path(one) for one in self.ids if one > kept):
                self._put(path, self.branch.read(path))
                self._require(path)
            for path in map(tag_path, read_tags(self.branch)):
                self.main.write(path, self.branch.read(path))
                self._require(path)
        except NotFound as gone:
            raise self._contended(f"the branch lost a snapshot or tag meanwhile ({gone.message})") from None
        self.main.write_hint(LATEST_HINT, str(self.ids[-1]).encode())

    def _require(self, path: str) -> None:
        """Takes a snapshot or tag back that expired in the branch, or was deleted there, while main got it."""
        if not self.branch.exists(path):
            self.main.delete(path)
            raise self._contended(f"{path} was deleted from the branch meanwhile")

    def _schemas(self) -> tuple[int, list[int], list[int]]:
        """How many schemas both have in common from the first on, and the ids of main's and of the branch's."""
        mine, theirs = SchemaStore(self.main).ids(), SchemaStore(self.branch).ids()
        both = zip(mine, theirs, strict=False)
        alike = (self.main.read(schema_path(a)) == self.branch.read(schema_path(b)) for a, b in both)
        return sum(1 for _ in takewhile(bool, alike)), mine, theirs

    def _copy_schemas(self) -> None:
        same, mine, theirs = self._schemas()
        for one in reversed(mine[same:]):
            self.main.delete(schema_path(one))
        for one in theirs[same:]:
            self._put(schema_path(one), self.branch.read(schema_path(one)))

    def _put(self, path: str, data: bytes) -> None:
        if self.main.put_if_absent(path, data) is PutResult.EXISTS and self.main.read(path) != data:
            raise self._contended(f"a writer of main made {path} meanwhile")

    def _contended(self, why: str) -> CommitContended:
        return CommitContended(
            f"was not forwarded to the end: {why}. It is in a state that the branch had. Stop the writers of both, "
            "and run fast_forward again."
        ).of_table(self.main.location, subject=True)
