"""Creates, deletes and fast-forwards branches. A branch is a history of its own over the files of
one table (table-kinds.md §6). A fast forward replaces the history of main by that of a branch.

Invariants:

- While a branch is made or deleted, a note `_paimon_stream/branch.<name>` says so, and this release
  does not open the branch. The note is written before the branch's first file is made or removed.
  It is removed last. After a kill, the same call completes the work. Code that deletes files reads
  noted branches, too.
- If a branch is made from a tag, the tag is read again after the branch has got its first snapshot.
  A process that deletes the tag deletes the tag's file first, and reads the branches after that. So
  either the deletion sees the branch, or the creation sees that the tag is gone and deletes the
  branch again.
- When a branch is deleted, LATEST is removed first, because a hint must never name a snapshot that
  is gone. Snapshots and then schemas are removed last, because a branch without a schema stops
  Java's removal of orphans.
- Whenever a fast forward is killed, readers of main see a state that main or the branch had. The
  fast forward first rolls main back to the newest snapshot that main and the branch share, or, if
  they share none, to the branch's oldest snapshot, under a pin (`rollback.py`). After that, main
  gets the branch's snapshots, in ascending order, the branch's tags, and LATEST at the end.
- Before main loses anything, its registers are told to ask the notes of removals, and main gets the
  schemas that the target needs. A run that is killed later may never be completed.
- After main has got a snapshot or tag, the fast forward checks whether the branch still has it, and
  otherwise removes it from main again. An expiry in the branch deletes the snapshot's own file
  first, and reads the other branches after that. So either the fast forward sees the expiry, or the
  expiry sees the fast forward.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Final, cast

from paimon_stream.errors import (
    AlreadyExists,
    CommitContended,
    CorruptMetadata,
    FormatError,
    IncompatibleSchema,
    NotFound,
)
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    Snapshot,
    SnapshotRef,
    encode_snapshot,
)
from paimon_stream.maintenance.forwarded import ask_notes, copy_stream
from paimon_stream.maintenance.needed import refuse_missing, without_changelog
from paimon_stream.maintenance.pins import read_pins, refuse_while_pinned, under_way
from paimon_stream.maintenance.rollback import Forwarding, RollbackTarget, rollback_to
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage import branch as of_branch
from paimon_stream.storage.base import PutResult, Storage, delete_below
from paimon_stream.table.branch_identity import read_identity, write_identity
from paimon_stream.table.fate import cut_below, fate_of
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.journalled import journalled_batches, live_files_of
from paimon_stream.table.layout import (
    LATEST_HINT,
    SCHEMA_FOLDER,
    SNAPSHOT_FOLDER,
    schema_path,
    snapshot_path,
    tag_path,
    user_folder,
    user_folders,
)
from paimon_stream.table.receipts import copy_receipts
from paimon_stream.table.references import read_tag
from paimon_stream.table.removals import (
    FAST_FORWARD,
    ROLLBACK,
    Removals,
    Removed,
    copy_removals,
    note_restored,
    read_removals,
)
from paimon_stream.table.schema import SchemaStore, no_such_branch
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

WHERE: Final = "branches are made and deleted from the table itself. Load it without a branch"
_DELETED: Final = b"delete"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchReport(Report):
    """What was done to a branch.

    Attributes:
        location: where the table is.
        branch: the name of the branch.
        snapshot: the id of the branch's newest snapshot, if there is one.
        found: false if there was no branch to delete.
        dry_run: whether nothing was changed.
    """

    location: str
    branch: str
    snapshot: int | None = None
    found: bool = True
    dry_run: bool = False


def read_branches(storage: Storage) -> dict[str, Snapshot | None]:
    """The finished branches other than main, by name, each with its newest snapshot. Raises
    `CorruptMetadata`, `StorageError`.
    """
    branches = [
        of_branch.BranchStorage(of_branch.whole_of(storage), name)
        for name in of_branch.branch_names(storage)
    ]
    return {
        branch.branch: SnapshotStore(cast(Storage, branch)).latest()
        for branch in branches
        if not branch.is_noted()
    }


def create_branch(
    table: Table, name: str, tag: str | None = None, *, runtime: Runtime | None = None
) -> BranchReport:
    """Creates a branch of a table, from the tag `tag` or empty. Raises the errors of
    `PaimonTable.create_branch`.
    """
    main = table.storage
    of_branch.check_is_main(main, WHERE)
    of_branch.check_branch(name, main.location)
    tagged = None if tag is None else _tagged(table, tag, runtime)
    _note_creation(main, name, tag)
    branch = of_branch.branch_storage(main, name)
    for schema_id in SchemaStore(main).ids():
        if tagged is None or schema_id <= tagged.schema_id:
            branch.put_if_absent(schema_path(schema_id), main.read(schema_path(schema_id)))
    point = SnapshotRef.of_optional(tagged)
    write_identity(branch, point, runtime or system())
    if tagged is not None and tag is not None:
        branch.put_if_absent(snapshot_path(tagged.id), encode_snapshot(without_changelog(tagged)))
        # A process that deletes the tag after this second read sees the branch.
        if read_tag(main, tag_path(tag)) != tagged:
            delete_branch(table, name)
            raise _no_tag(main, tag)
        branch.write(tag_path(tag), main.read(tag_path(tag)))
    _remove_notes(main, name)
    snapshot_id = None if tagged is None else tagged.id
    return BranchReport(location=main.location, branch=name, snapshot=snapshot_id)


def delete_branch(table: Table, name: str, *, dry_run: bool = False) -> BranchReport:
    """Deletes a branch of a table. Raises the errors of `PaimonTable.delete_branch`."""
    main = table.storage
    of_branch.check_is_main(main, WHERE)
    of_branch.check_branch(name, main.location)
    exists = name in of_branch.branch_names(main)
    if dry_run:
        return BranchReport(location=main.location, branch=name, found=exists, dry_run=True)
    if exists:
        main.write(of_branch.branch_note(name), _DELETED)
        folder = of_branch.branch_folder(name)
        main.delete(folder + LATEST_HINT)  # a hint never names a snapshot that is gone
        delete_below(main, folder.rstrip("/"), last=(SNAPSHOT_FOLDER, SCHEMA_FOLDER))
    _remove_notes(main, name)
    return BranchReport(location=main.location, branch=name, found=exists)


def _remove_notes(storage: Storage, name: str) -> None:
    """Removes the notes of a branch that is being made or deleted."""
    for path in of_branch.notes_of_branch(storage, name):
        storage.delete(path)


def _tagged(table: Table, tag: str, runtime: Runtime | None) -> Snapshot:
    """The snapshot of a tag. Raises `NotFound` if the tag or one of its files is missing."""
    main = table.storage
    tagged = read_tags(main).get(tag)
    if tagged is None:
        raise _no_tag(main, tag)
    try:
        refuse_missing(table, tagged, data=not SnapshotStore(main, runtime).stands(tagged))
    except (CorruptMetadata, NotFound) as error:
        raise _no_tag(main, tag) from error
    return tagged


def _no_tag(storage: Storage, tag: str) -> NotFound:
    return NotFound(
        f"{storage.location} has no tag {tag!r} with all its files. No branch was created. Give "
        "another tag.",
        table=storage.location,
        tag=tag,
    )


def _note_creation(storage: Storage, name: str, tag: str | None) -> None:
    """Notes that the branch is being made. An interrupted creation may be continued."""
    older = of_branch.older_branch_note(name)
    was_begun_before = older in of_branch.notes_of_branch(storage, name)
    path = of_branch.branch_note(name)
    if was_begun_before:
        path = older
    content = b"create"
    if tag is not None:
        content = f"create from {tag}".encode()
    if name not in of_branch.branch_names(storage) or storage.exists(path):
        if storage.put_if_absent(path, content) is PutResult.EXISTS:
            if storage.read(path) == content:
                return
            raise CommitContended(
                f"{storage.location}: the creation from another tag, or the deletion, of branch "
                f"{name!r} was interrupted. Run delete_branch({name!r}) first.",
                table=storage.location,
                branch=name,
            )
        if name not in of_branch.branch_names(storage):
            return
        storage.delete(path)  # another call has just made the branch
    raise AlreadyExists(
        f"{storage.location} has a branch {name!r}. Nothing was changed. Take another name, or "
        "delete that branch.",
        table=storage.location,
        branch=name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardReport(Report):
    """What a fast forward did to main.

    Attributes:
        location: where the table is.
        branch: the name of the branch.
        snapshot: the id of main's newest snapshot after the fast forward.
        kept: the id of the newest snapshot that main kept; None if main and the branch shared no
            snapshot.
        added: the ids of the added snapshots.
        removed: the ids of the removed snapshots.
        tags: the names of the removed tags.
        streams: the commit users that lost batches, each with the smallest identifier removed.
        dry_run: whether nothing was changed.
    """

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
    table: Table,
    name: str,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    runtime: Runtime | None = None,
) -> ForwardReport:
    """Replaces the history of main by that of a branch. Raises the errors of
    `PaimonTable.fast_forward`.
    """
    main = table.storage
    of_branch.check_is_main(main, WHERE)
    of_branch.check_branch(name, main.location)
    forward = _Forward(table, of_branch.BranchStorage(main, name), runtime)
    target = forward.target()
    forward.refuse(target, take_over=take_over)
    forwarding = Forwarding(
        lost=forward.lost(target),
        removes_expired=forward.removes_expired(target),
        begin=forward.begin,
    )
    rolled = rollback_to(
        table, target, dry_run=dry_run, take_over=take_over, forwarding=forwarding, runtime=runtime
    )
    if not dry_run:
        forward.add(target.snapshot.id)
        present = forward.present()
        forward.note_what_is_back(present)
        forward.copy_streams(present)
    kept = None if target.alone else target.snapshot.id
    return ForwardReport(
        location=main.location,
        branch=name,
        snapshot=forward.ids[-1],
        kept=kept,
        added=tuple(
            snapshot_id
            for snapshot_id in forward.ids
            if target.alone or snapshot_id > target.snapshot.id
        ),
        removed=rolled.snapshots,
        tags=rolled.tags,
        streams=rolled.streams,
        dry_run=dry_run,
    )


def _is_proven(note: Removed | None) -> bool:
    return note is not None and note.is_proven


class _Forward:
    """One fast forward of main to a branch.

    Attributes:
        table: the table, as main.
        main: the storage of main.
        branch: the storage of the branch.
        main_snapshots: the snapshots of main.
        branch_snapshots: the snapshots of the branch.
        ids: the ids of the branch's snapshots that have no gap above them, ascending.
    """

    def __init__(
        self, table: Table, branch: of_branch.BranchStorage, runtime: Runtime | None
    ) -> None:
        main = table.storage
        self.table = table
        self.main = main
        self.branch = cast(Storage, branch)
        self.main_snapshots = SnapshotStore(main, runtime)
        self.branch_snapshots = SnapshotStore(self.branch, runtime)
        if branch.is_noted() or branch.branch not in of_branch.branch_names(main):
            raise no_such_branch(branch)
        ids = self.branch_snapshots.ids()
        self.ids = [
            snapshot_id
            for place, snapshot_id in enumerate(ids, 1)
            if ids[-1] - snapshot_id == len(ids) - place
        ]
        if not ids:
            raise NotFound(
                f"{branch.location} has no snapshot to which main could be forwarded. Nothing was "
                "changed. Write to it first.",
                table=main.location,
                branch=branch.branch,
            )

    def target(self) -> RollbackTarget:
        """The target of the rollback with which the fast forward begins. It is the newest snapshot
        that main and the branch share. If they share none, it is the branch's oldest snapshot,
        which the rollback restores in main. A pin shows that an interrupted run has already
        restored that snapshot.
        """
        for snapshot_id in reversed(self.ids):
            in_branch = self.branch_snapshots.find(snapshot_id)
            in_main = self.main_snapshots.find(snapshot_id)
            if in_branch is not None and in_main is not None and in_branch.nonce == in_main.nonce:
                pins = read_pins(self.main)
                is_alone = any(pin.is_alone and pin.keeps(in_main) for pin in pins)
                return RollbackTarget(snapshot=in_main, alone=is_alone)
        oldest = self.branch_snapshots.get(self.ids[0])
        folder = of_branch.branch_folder(of_branch.branch_of(self.branch))
        return RollbackTarget(
            snapshot=oldest, kept_by=folder + snapshot_path(oldest.id), alone=True
        )

    def refuse(self, target: RollbackTarget, *, take_over: bool) -> None:
        """Raises `CommitContended` or `IncompatibleSchema` if main cannot be forwarded to the
        branch. With `take_over`, a rollback of main that is under way does not prevent it.
        """
        refuse_while_pinned(self.branch, "nothing was forwarded")
        foreign = [pin for pin in read_pins(self.main) if not pin.keeps(target.snapshot)]
        if foreign and not take_over:
            raise under_way(self.main, foreign, "nothing was forwarded")
        same, main_schemas, _ = self._schemas()
        if not main_schemas[same:]:
            return
        if target.snapshot.schema_id >= same:
            raise IncompatibleSchema(
                f"{self.main.location} and {self.branch.location} share no snapshot, and their "
                f"schemas differ from schema {same} on. Nothing was changed. Append the rows of "
                "the branch to the table.",
                table=self.main.location,
                schema=same,
            )
        for name, tagged in sorted(read_tags(self.main).items(), key=itemgetter(0)):
            if tagged.schema_id < same or tagged.id > target.snapshot.id:
                continue
            raise IncompatibleSchema(
                f"{self.main.location}: tag {name!r} would stay, and needs schema "
                f"{tagged.schema_id} of main, which {self.branch.location} does not have. Nothing "
                "was changed. Delete the tag, or append the rows of the branch to the table.",
                table=self.main.location,
                schema=tagged.schema_id,
                tag=name,
            )

    def lost(self, target: RollbackTarget) -> list[Removed]:
        """The snapshots and batches that main loses if it shares no snapshot with the branch any
        more. These are main's snapshots above the branch point, also those below the branch's
        oldest snapshot, and the expired batches in main's journals. The branch was not built on any
        of these, so nobody may conclude later that they have expired. If the branch point is not
        known, the branch may have them. The result is empty if the target stands in main, because
        the rollback to the target notes everything.
        """
        if not target.alone:
            return []
        shared, proven = self._shared()
        restored = SnapshotRef.of(target.snapshot)  # by a run that was killed
        others = [snapshot for snapshot in self._readable() if SnapshotRef.of(snapshot) != restored]
        lost = [
            Removed.of(snapshot, certain=snapshot.id > proven)
            for snapshot in others
            if snapshot.id > shared
        ]
        present = {(snapshot.commit_user, snapshot.commit_identifier) for snapshot in others}
        return [*lost, *self._lost_of_journals(present, shared, proven)]

    def _lost_of_journals(
        self, present: Collection[tuple[str, int]], shared: int, proven: float
    ) -> list[Removed]:
        """The batches that main loses and of which only its journals are left.

        Args:
            present: the commit users and identifiers of main's snapshots, which are noted already.
            shared: as the first id of `_shared`.
            proven: as the second id of `_shared`.
        """
        lost: list[Removed] = []
        earlier = read_removals(self.main)  # a noted snapshot may be part of the branch
        for user, entry in journalled_batches(self.main):
            before = entry.previous
            if (
                before is not None
                and before.snapshot.id > shared
                and (user, before.batch_id) not in present
                and not _is_proven(earlier.of_nonce(before.snapshot.nonce))
            ):
                certain = before.snapshot.id > proven
                lost.append(Removed.of_previous(user, entry, before, certain=certain))
            if (user, entry.batch_id) not in present and not _is_proven(
                earlier.of_uuid(entry.stage_uuids[0])
            ):
                newest = entry.newest or entry.base
                built_on = 0 if newest is None else newest.id
                certain = built_on >= proven  # the attempt's snapshot lies above `built_on`
                published = certain and self._is_seen(entry)
                lost.append(Removed.of_attempt(user, entry, published=published, certain=certain))
        return lost

    def _is_seen(self, entry: JournalEntry) -> bool:
        """Whether the newest manifests of main mention a file of a journalled batch. Compactions and
        merged manifests may hide it. If manifests cannot be read, the failure is only logged, so
        that main can be forwarded.
        """
        try:
            latest = self.main_snapshots.latest()
            return bool(live_files_of(self.table, latest, entry, removed=True))
        except FormatError as error:
            _LOG.warning(
                "%s: whether batch %d, which has expired, was published is not known, so its stream may go on "
                "with the branch's batch in its place: %s",
                self.main.location,
                entry.batch_id,
                error,
            )
            return False

    def removes_expired(self, target: RollbackTarget) -> bool:
        """Whether main also loses snapshots that have expired in main, as far as is known."""
        if not target.alone:
            return False
        restored = self.main_snapshots.stands(target.snapshot)  # by a run that was killed
        ids = [
            snapshot_id
            for snapshot_id in self.main_snapshots.ids()
            if snapshot_id != target.snapshot.id or not restored
        ]
        shared_up_to, _ = self._shared()
        return bool(ids) and ids[0] > shared_up_to + 1

    def _shared(self) -> tuple[int, float]:
        """Two ids. Up to the first id, the branch was surely built on main's snapshots. Above the
        second id, it surely was not. If the branch has no identity, no id is proven.
        """
        identity = read_identity(self.branch)
        if identity is None:
            return 0, math.inf
        point = identity.snapshot
        if point is None:
            return 0, 0
        latest = self.main_snapshots.latest()
        held = fate_of(self.main_snapshots, point, latest).is_held
        if held is True:
            return point.id, point.id
        if held is None:
            return 0, point.id
        cut = cut_below(self.main_snapshots, read_removals(self.main), point, latest)
        if cut is None:
            return 0, point.id
        return cut.id, cut.id

    def _readable(self) -> list[Snapshot]:
        """The snapshots of main that can be read. Snapshots that cannot be read are removed,
        too.
        """

        def readable(snapshot_id: int) -> Snapshot | None:
            try:
                return self.main_snapshots.find(snapshot_id)
            except FormatError as error:
                _LOG.warning(
                    "%s: snapshot %d cannot be read, so the report does not name the stream that wrote it: %s",
                    self.main.location,
                    snapshot_id,
                    error,
                )
                return None

        looks = [partial(readable, snapshot_id) for snapshot_id in self.main_snapshots.ids()]
        return [snapshot for snapshot in self.main.together(looks) if snapshot is not None]

    def present(self) -> list[SnapshotRef]:
        """The branch's snapshots that main gets or already has."""
        snapshots = self.branch.together(
            [partial(self.branch_snapshots.find, snapshot_id) for snapshot_id in self.ids]
        )
        return [SnapshotRef.of(snapshot) for snapshot in snapshots if snapshot is not None]

    def note_what_is_back(self, present: Sequence[SnapshotRef]) -> None:
        """Copies the branch's notes of removed snapshots to main. Also notes which lost snapshots
        are part of main again: the `present` snapshots of the branch, and the snapshots from which
        the branch was made.
        """
        copy_removals(self.branch, self.main)
        identity = read_identity(self.branch)
        restored = list(present)
        if identity is not None and identity.snapshot is not None:
            restored.append(identity.snapshot)
        note_restored(self.main, restored)

    def copy_streams(self, present: Collection[SnapshotRef]) -> None:
        """Copies the files of the branch's streams to main: their journals, claims and registers,
        and the receipts of writes with an identity. If main has a stream of another query with the
        same commit user, that stream keeps its own files. If both streams are of one query, the new
        register unites what both registers say (`maintenance/forwarded.py`).
        """
        losses = self._losses(present)
        for folder in user_folders(self.branch):
            copy_stream(self.branch, self.main, folder, losses.get(folder, ()))
        copy_receipts(self.branch, self.main)

    def _losses(self, present: Collection[SnapshotRef]) -> dict[str, set[tuple[str | None, str]]]:
        """The folders of the commit users whose batches main loses. For each folder, the result has
        pairs: a query that wrote batches, and the name of the note of their removal.
        """
        losses: dict[str, set[tuple[str | None, str]]] = {}
        removals = read_removals(self.main)
        of_branch = set(read_removals(self.branch).removed)
        for removed in removals.removed:  # also those of a run that was killed
            if not removed.is_of_stream:
                continue
            if removed.by == ROLLBACK and removed not in of_branch:
                is_lost = not self._went_on_after(removed, removals)
            else:
                is_lost = (
                    removed.by == FAST_FORWARD and removed.target in present and removed.is_loss
                )
            if is_lost:
                losses.setdefault(user_folder(str(removed.user)), set()).add(
                    (removed.query, removed.note)
                )
        return losses

    def _went_on_after(self, removed: Removed, removals: Removals) -> bool:
        """Whether main's stream has again run a batch that a rollback removed, or a later batch. If
        so, an operator was asked about the loss. If not, the branch's batches must not hide the
        loss. Two things prove it. A snapshot with such a batch may lie above the rollback's target
        and be shared with the branch. Or main's journal may have a later attempt that no note
        names.
        """
        identity = read_identity(self.branch)
        batch = removed.identifier
        target = removed.target
        point = None if identity is None else identity.snapshot
        user = str(removed.user)
        if batch is None or target is None or removed.millis is None:
            return False
        shared = [
            snapshot_id
            for snapshot_id in self.ids
            if point is not None and target.id < snapshot_id <= point.id
        ]
        for snapshot in self.branch.together(
            [partial(self.branch_snapshots.find, snapshot_id) for snapshot_id in shared]
        ):
            is_of_user = snapshot is not None and snapshot.commit_user == user
            if is_of_user and batch <= snapshot.commit_identifier < BATCH_IDENTIFIER:
                return True
        main_journal = Journal(self.main, user)
        branch_journal = Journal(self.branch, user)
        for number in main_journal.batches():
            entry = None if number < batch else main_journal.read(number)
            if entry is None or entry.attempted_millis < removed.millis:
                continue
            is_noted = removals.of_uuid(entry.stage_uuids[0]) is not None
            if not is_noted and entry != branch_journal.read(number):
                return True
        return False

    def add(self, kept: int) -> None:
        """Copies to main the branch's schemas, its snapshots above the id `kept`, and its tags.
        `kept` is the id of main's newest snapshot.
        """
        try:
            self.copy_schemas()
            for snapshot_id in self.ids:
                if snapshot_id > kept:
                    path = snapshot_path(snapshot_id)
                    self._put(path, self.branch.read(path))
                    self._require_in_branch(path)
            for path in map(tag_path, read_tags(self.branch)):
                self.main.write(path, self.branch.read(path))
                self._require_in_branch(path)
        except NotFound as gone:
            raise self._contended(
                f"the branch lost a snapshot or tag meanwhile ({gone.message})"
            ) from None
        self.main.write_hint(LATEST_HINT, str(self.ids[-1]).encode())

    def _require_in_branch(self, path: str) -> None:
        """Checks that the branch still has the file of a snapshot or tag that was just copied to
        main. If the branch has lost the file, removes the file from main and raises
        `CommitContended`.
        """
        if not self.branch.exists(path):
            self.main.delete(path)
            raise self._contended(f"{path} was deleted from the branch meanwhile")

    def _schemas(self) -> tuple[int, list[int], list[int]]:
        """Returns the number of schemas, from the first on, that main and the branch share. Also
        returns the ids of main's schemas, and the ids of the branch's schemas.
        """
        main_schemas = SchemaStore(self.main).ids()
        branch_schemas = SchemaStore(self.branch).ids()
        both = zip(main_schemas, branch_schemas, strict=False)
        alike = (
            self.main.read(schema_path(a)) == self.branch.read(schema_path(b)) for a, b in both
        )
        return sum(1 for _ in takewhile(bool, alike)), main_schemas, branch_schemas

    def begin(self) -> None:
        """Gives main the registers and schemas that it must have before it loses anything. A run
        that is killed later may never be completed, but the next run of a stream must notice the
        loss.
        """
        for folder, losses in self._losses(self.present()).items():
            ask_notes(self.branch, self.main, folder, losses)
        self._add_schemas()

    def _add_schemas(self) -> None:
        """Copies the branch's schemas to main before the target is restored, because the target may
        need them. If some schemas of main have to be removed first, no schema is copied. In that
        case the target needs no further schema (`refuse`). Main's snapshots need main's schemas
        until the snapshots are removed, because a killed run may be given up.
        """
        same, main_schemas, branch_schemas = self._schemas()
        if not main_schemas[same:]:
            for schema_id in branch_schemas[same:]:
                self._put(schema_path(schema_id), self.branch.read(schema_path(schema_id)))

    def copy_schemas(self) -> None:
        """Replaces main's schemas by those of the branch."""
        same, main_schemas, branch_schemas = self._schemas()
        for schema_id in reversed(main_schemas[same:]):
            self.main.delete(schema_path(schema_id))
        for schema_id in branch_schemas[same:]:
            self._put(schema_path(schema_id), self.branch.read(schema_path(schema_id)))

    def _put(self, path: str, data: bytes) -> None:
        if self.main.put_if_absent(path, data) is PutResult.EXISTS and self.main.read(path) != data:
            raise self._contended(f"a writer of main made {path} meanwhile")

    def _contended(self, cause: str) -> CommitContended:
        return CommitContended(
            f"was forwarded only in part: {cause}. It is in an earlier state of the branch. Stop "
            "the writers of both, and run fast_forward again."
        ).of_table(self.main.location, subject=True)
