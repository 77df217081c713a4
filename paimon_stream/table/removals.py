"""Notes which snapshots the rollbacks and fast forwards of this package have removed
(exactly-once.md §8).

Before a rollback or fast forward removes anything, it writes its notes,
`_paimon_stream/removed.<when>-<letters>.json`. It completes the notes when everything that they
name is gone. Each run writes files of its own, so no writer loses what another one has noted.
Nothing in a note is ever dropped: a stream that remembers a snapshot may come back after years. A
note that cannot be read leaves a doubt, and never counts as empty.

A fast forward or a rollback may make removed snapshots part of the table again. Their entries then
move from `removed` to `restored` in the notes. `restored` is only for people who read the notes.

Older releases read only `_paimon_stream/rolled-back.json`, with the nonces of the newest thousand.
This release still writes that file for older releases, and still reads what they have noted in it.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from paimon_stream.errors import FormatError, NotFound, StorageError
from paimon_stream.format.json_text import (
    MOST_JSON,
    encode_checksummed,
    integer,
    optional_text,
    reading_checksummed,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.table.journal import JournalEntry, PreviousBatch
from paimon_stream.table.layout import OWN_FOLDER

_LOG = logging.getLogger(__name__)
ROLLBACK: Final = "rollback"
FAST_FORWARD: Final = "fast forward"
_KIND: Final = "removal"
_PREFIX: Final = "removed."
_SUFFIX: Final = ".json"
"""No commit user has a folder with a dot in its name (`layout.escape_user`)."""

_MOST_IN_ONE: Final = 10_000
"""The most snapshots in one file. They take a tenth of the bytes and values that `json_text` reads
at most.
"""

_OLD_PATH: Final = f"{OWN_FOLDER}/rolled-back.json"
_OLD_KIND: Final = "rollbacks"
_MOST_OF_OLD: Final = 1000
_CURE: Final = (
    "Restore it from a backup; or look for the rows of all streams in the table, and move it away."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A snapshot that was removed, or an attempt at a batch whose snapshot may already have gone.

    Attributes:
        snapshot: the snapshot; None for an attempt, which `uuids` name.
        uuids: the uuids of the attempt. The nonce of each snapshot of the attempt contains one of
            these uuids.
        user: the commit user; None in notes of older releases.
        identifier: the batch of that user; None in notes of older releases.
        query: the id of the query that wrote the batch; None if the batch has none, and in notes of
            older releases.
        millis: when the removal was announced, in epoch milliseconds; None in notes of older
            releases.
        ended: whether the run has surely removed the snapshot or attempt. If False, the run may
            have stopped before the removal.
        certain: whether the table that remained was surely not built on the snapshot or attempt.
        target: the snapshot that was to be the newest one.
        by: the operation that removed it, for messages.
        removed_expired: whether the run also removed what was left of snapshots that had expired.
            Of the batches of these snapshots, the run could note only what journals have.
        stood: whether the snapshot's file was there when the run noted it. If False, the snapshot
            may have expired before, so an attempt of the same run may lie above it. False in notes
            of older releases, which did not say it.
        published: whether it was seen that the attempt's batch was part of the table. If False, the
            attempt may never have been published. False for snapshots, and in notes of older
            releases.
        note: the name of the note's file; empty for the file of older releases.
    """

    snapshot: SnapshotRef | None
    uuids: tuple[str, ...] = ()
    user: str | None = None
    identifier: int | None = None
    query: str | None = None
    millis: int | None = None
    ended: bool = True
    certain: bool = True
    target: SnapshotRef | None = None
    by: str = "rollback or fast forward"
    removed_expired: bool = False
    stood: bool = False
    published: bool = False
    note: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot, *, certain: bool = True) -> "Removed":
        """The note of a snapshot that is about to be removed. `certain` says whether the table that
        remains is surely not built on the snapshot.
        """
        return cls(
            snapshot=SnapshotRef.of(snapshot),
            user=snapshot.commit_user,
            identifier=snapshot.commit_identifier,
            query=Marks.of(own_properties(snapshot)).query_id,
            certain=certain,
            stood=True,
        )

    @classmethod
    def of_attempt(
        cls, user: str, entry: JournalEntry, *, published: bool, certain: bool = True
    ) -> "Removed":
        """The note of a journalled batch that is about to be removed. Its snapshot may have
        expired. `published` says whether the batch was seen in the table, and `certain` whether the
        table that remains is surely not built on the batch.
        """
        return cls(
            snapshot=None,
            uuids=entry.stage_uuids,
            user=user,
            identifier=entry.batch_id,
            query=entry.query_id,
            certain=certain,
            published=published,
        )

    @classmethod
    def of_previous(
        cls, user: str, entry: JournalEntry, previous: PreviousBatch, *, certain: bool = True
    ) -> "Removed":
        """The note of a batch that is about to be removed and that only the journal entry of the
        next batch names. Its snapshot may have expired. `certain` says whether the table that
        remains is surely not built on the batch.
        """
        return cls(
            snapshot=previous.snapshot,
            user=user,
            identifier=previous.batch_id,
            query=entry.query_id,
            certain=certain,
        )

    @property
    def is_of_stream(self) -> bool:
        """Whether the note is of a batch of a stream whose user is known. Batch commits do not
        count, because all of them share one identifier.
        """
        return self.user is not None and self.identifier not in (None, BATCH_IDENTIFIER)

    @property
    def is_proven(self) -> bool:
        """Whether the snapshot or attempt is certainly not part of the table."""
        return self.ended and self.certain

    @property
    def is_loss(self) -> bool:
        """Whether the note shows a loss: of a snapshot, or of an attempt that was surely published
        and is surely not part of what remains. Any other attempt was perhaps never published.
        """
        return self.snapshot is not None or (self.published and self.certain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What the notes of one table say.

    Attributes:
        removed: the snapshots and attempts that were removed.
        restored: the nonces of removed snapshots that are part of the table again.
        doubts: for each note that cannot be read, the reason.
    """

    removed: tuple[Removed, ...] = ()
    restored: frozenset[str] = frozenset()
    doubts: tuple[str, ...] = ()

    def of_nonce(self, nonce: str) -> Removed | None:
        """The note of the snapshot with this nonce; None if there is none. If there are several, a
        proven one is returned.
        """
        return _best(
            removed
            for removed in self.removed
            if (removed.snapshot is not None and removed.snapshot.nonce == nonce)
            or any(uuid in nonce for uuid in removed.uuids)
        )

    def of_uuid(self, uuid: str) -> Removed | None:
        """The note of the snapshot or attempt whose metadata has this uuid in its names; None if
        there is none. If there are several, a proven one is returned.
        """
        return _best(
            removed
            for removed in self.removed
            if uuid in removed.uuids
            or (removed.snapshot is not None and uuid in removed.snapshot.nonce)
        )

    def unfinished(self, target: SnapshotRef) -> tuple[Removed, ...]:
        """The notes of runs that announced a removal down to the snapshot `target` and did not
        record its end.
        """
        return tuple(
            removed for removed in self.removed if not removed.ended and removed.target == target
        )


def _best(candidates: Iterable[Removed]) -> Removed | None:
    """A proven note if there is one, and otherwise any note."""
    notes = list(candidates)
    proven = [removed for removed in notes if removed.is_proven]
    return next(iter(proven or notes), None)


def read_removals(storage: Storage) -> Removals:
    """What all notes of the table say. A note that cannot be read becomes one of the `doubts`.
    Raises `StorageError`.
    """
    old, paths = storage.together([partial(_read_old, storage), partial(_note_paths, storage)])
    notes = storage.together([partial(_read, storage, path) for path in paths])
    return Removals(
        removed=tuple(chain.from_iterable(note.removed for note in (*notes, old))),
        restored=frozenset().union(*(note.restored for note in notes)),
        doubts=tuple(chain.from_iterable(note.doubts for note in (*notes, old))),
    )


def _note_paths(storage: Storage) -> list[str]:
    names = storage.list_names(OWN_FOLDER, _PREFIX)
    return [f"{OWN_FOLDER}/{name}" for name in names if name.endswith(_SUFFIX)]


class RemovalNotes:
    """The notes of one rollback or fast forward, which removes snapshots of a table."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        what: str,
        target: SnapshotRef,
        *,
        removes_expired: bool = False,
    ) -> None:
        """Writes no note yet.

        Args:
            storage: the table, or the branch, whose snapshots are removed.
            runtime: the clock and the source of ids for the names of the notes.
            what: the kind of the run, for messages: `ROLLBACK` or `FAST_FORWARD`.
            target: the snapshot that will be the newest one.
            removes_expired: whether the table also loses the rows of snapshots that have expired.
        """
        self._storage = storage
        self._runtime = runtime
        self._what = what
        self._target = target
        self._removes_expired = removes_expired
        # For each note, by its path: when it was announced (epoch milliseconds), and the removed
        # snapshots and attempts that it names.
        self._written: dict[str, tuple[int, tuple[Removed, ...]]] = {}
        # The snapshots and the uuids of attempts that the notes name.
        self._announced: set[SnapshotRef | tuple[str, ...]] = set()

    def announce(self, removed: Sequence[Removed]) -> bool:
        """Notes the snapshots and attempts that are about to be removed, unless this run has noted
        them already. Returns whether all of them are noted. If a note cannot be written, the
        failure is logged, with the streams that will not be stopped. The removal goes on, because
        it has to work on a full disk.
        """
        by_key: dict[SnapshotRef | tuple[str, ...], Removed] = {}
        for entry in removed:  # of several for the same snapshot or attempt, the first counts
            first = by_key.setdefault(entry.snapshot or entry.uuids, entry)
            by_key[entry.snapshot or entry.uuids] = replace(first, stood=first.stood or entry.stood)
        unnoted = [entry for key, entry in by_key.items() if key not in self._announced]
        for start in range(0, len(unnoted), _MOST_IN_ONE):
            noted = tuple(unnoted[start : start + _MOST_IN_ONE])
            millis = self._runtime.clock.now_millis()
            letters = self._runtime.ids.uuid()[:8]
            path = f"{OWN_FOLDER}/{_PREFIX}{millis}-{letters}{_SUFFIX}"
            try:
                self._storage.put_if_absent(path, self._encoded(millis, noted, ended=False))
            except StorageError as error:
                _LOG.warning(
                    "%s: could not note which snapshots the %s removes, so these streams will not be stopped once "
                    "their snapshots have expired: %s. %s",
                    self._storage.location,
                    self._what,
                    _in_words(unnoted[start:]),
                    error,
                )
                return False
            self._written[path] = (millis, noted)
            self._announced.update(entry.snapshot or entry.uuids for entry in noted)
        return True

    def withdraw(self) -> None:
        """Deletes the notes of this run, because the run has removed nothing. A failure is
        logged.
        """
        for path in list(self._written):
            try:
                self._storage.delete(path)
            except StorageError as error:
                _LOG.warning(
                    "%s: the note %s of a %s that removed nothing could not be removed, so what has expired may later "
                    "be reported as unknown: %s",
                    self._storage.location,
                    path,
                    self._what,
                    error,
                )
                return
            del self._written[path]

    def complete(self) -> None:
        """Notes that everything that this run announced is gone. A failure is logged. After a
        failure, it is not known what became of the snapshots.
        """
        for path, (millis, noted) in self._written.items():
            try:
                self._storage.write(path, self._encoded(millis, noted, ended=True))
            except StorageError as error:
                _LOG.warning(
                    "%s: could not note that the %s has ended, so what became of the snapshots that it removed "
                    "cannot be known: %s",
                    self._storage.location,
                    self._what,
                    error,
                )
                return
        self._write_old()

    def _write_old(self) -> None:
        """Adds the nonces of the removed snapshots to the file that older releases read, the newest
        first.
        """
        gone = [
            removed.snapshot.nonce
            for _, noted in self._written.values()
            for removed in noted
            if removed.snapshot is not None and removed.certain
        ]
        if not gone:
            return
        try:
            with suppress(FormatError):  # a damaged file stays, for whoever has to judge it
                nonces = [*gone, *_old_nonces(self._storage)][:_MOST_OF_OLD]
                content = encode_checksummed(_OLD_KIND, {"nonces": nonces})
                self._storage.write(_OLD_PATH, content)
        except StorageError as error:
            _LOG.warning(
                "%s: could not note for older releases which snapshots were removed: %s",
                self._storage.location,
                error,
            )

    def _encoded(self, millis: int, removed: Sequence[Removed], *, ended: bool) -> bytes:
        of_expired = {"tookExpired": True} if self._removes_expired else {}
        return encode_checksummed(
            _KIND,
            {
                "by": self._what,
                "target": self._target.node(),
                "millis": millis,
                "ended": ended,
                **of_expired,
                "removed": [
                    {
                        "snapshot": entry.snapshot and entry.snapshot.node(),
                        "uuids": list(entry.uuids),
                        "user": entry.user,
                        "identifier": entry.identifier,
                        "query": entry.query,
                        "certain": entry.certain,
                        "stood": entry.stood,
                        "published": entry.published,
                    }
                    for entry in removed
                ],
            },
        )


def note_restored(storage: Storage, present: Iterable[SnapshotRef]) -> None:
    """Notes that the snapshots `present` are part of the table's history again. Everything that the
    same run removed below such a snapshot is back, too. In the notes, all of these move from
    `removed` to `restored`. A failure is logged. After a failure, streams that have lost nothing
    may be stopped.
    """
    nonces = {snapshot.nonce for snapshot in present}
    try:
        paths = _note_paths(storage)
        known = -1
        while known < len(nonces):  # another run may have removed what these were built on
            known = len(nonces)
            for path in paths:
                nonces |= _restore_in(storage, path, nonces)
        _forget_old(storage, nonces)
    except StorageError as error:
        _LOG.warning(
            "%s: could not note which removed snapshots are part of the table again, so streams that have lost "
            "nothing may be stopped: %s",
            storage.location,
            error,
        )


def _restore_in(storage: Storage, path: str, nonces: set[str]) -> set[str]:
    """In one note, moves the snapshots that are back from `removed` to `restored`. Returns the
    nonces of these snapshots, and the nonce of the rollback's target, on which all of them were
    built. A note that cannot be read stays as it is.
    """
    data = read_if_there(storage.read, path, MOST_JSON)
    if data is None:
        return set()
    try:
        with reading_checksummed(_KIND, data, path, "a note of a removal", _CURE) as note:
            removed = [(node, _decoded(node)) for node in note["removed"]]
            restored = list(note.get("restored", ()))
            base = {SnapshotRef.of_node(note["target"]).nonce} if note["by"] == ROLLBACK else set()
    except FormatError:
        return set()
    is_back = _is_back([entry for _, entry in removed], nonces)
    if not any(is_back):
        return set()
    moved = [node for (node, _), moves in zip(removed, is_back, strict=True) if moves]
    left = [node for (node, _), moves in zip(removed, is_back, strict=True) if not moves]
    moved_note = {**note, "removed": left, "restored": [*restored, *moved]}
    storage.write(path, encode_checksummed(_KIND, moved_note))
    return base | {node["snapshot"]["nonce"] for node in moved if node["snapshot"] is not None}


def _is_back(removed: Sequence[Removed], nonces: set[str]) -> list[bool]:
    """Says of each entry of one run's note whether it is part of the table again. The snapshots
    with the nonces `nonces` are known to be.

    A run removes one history from the newest snapshot down. So a snapshot that is back was built on
    what the run removed below it. An attempt is back with its own snapshot. The snapshot of any
    other attempt had expired, so it lies below each snapshot that stood, and is back with any of
    these. It may lie above a snapshot that had expired, too, such as the one from which a branch
    was made. If a writer has used an id again while the run worked, only the snapshots themselves
    are back.
    """
    stood = {entry.snapshot: entry.stood for entry in removed if entry.snapshot is not None}
    themselves = [snapshot for snapshot in stood if snapshot.nonce in nonces]
    newest = max((snapshot.id for snapshot in themselves), default=-1)
    ids = Counter(snapshot.id for snapshot in stood)
    is_one_history = max(ids.values(), default=1) == 1
    has_all_expired = is_one_history and any(stood[snapshot] for snapshot in themselves)

    def is_back(entry: Removed) -> bool:
        if entry.snapshot is None:
            is_there = any(uuid in nonce for uuid in entry.uuids for nonce in nonces)
            return has_all_expired or is_there
        below = entry.snapshot.id <= newest and ids[entry.snapshot.id] == 1
        return below or entry.snapshot.nonce in nonces

    return [is_back(entry) for entry in removed]


def copy_removals(branch: Storage, main: Storage) -> None:
    """Copies the notes of removals from a branch to main, which gets the branch's history. Names of
    notes are unique. The nonces that older releases have noted are added to main's. If the branch's
    list of such nonces cannot be read, main gets a note that cannot be read. Raises `StorageError`.
    """
    for path in _note_paths(branch):
        data = read_if_there(branch.read, path)
        if data is not None:
            main.put_if_absent(path, data)
    try:
        branch_nonces = _old_nonces(branch)
        main_nonces = _old_nonces(main) if branch_nonces else []
    except FormatError:
        data = read_if_there(branch.read, _OLD_PATH)
        if data is not None:
            main.put_if_absent(f"{OWN_FOLDER}/{_PREFIX}rolled-back-of-a-branch{_SUFFIX}", data)
        return
    missing = [nonce for nonce in branch_nonces if nonce not in main_nonces]
    if missing:
        content = {"nonces": [*main_nonces, *missing][:_MOST_OF_OLD]}
        main.write(_OLD_PATH, encode_checksummed(_OLD_KIND, content))


def streams_of(removed: Iterable[Removed]) -> dict[str, int]:
    """The commit users of streams that lose batches by these removals, each with its first lost
    batch.
    """
    smallest: dict[str, int] = {}
    for entry in removed:
        if entry.is_of_stream:
            user = str(entry.user)
            batch = integer(entry.identifier)
            smallest[user] = min(batch, smallest.get(user, batch))
    return smallest


def _in_words(removed: Iterable[Removed]) -> str:
    streams = streams_of(removed)
    return ", ".join(f"{user!r} from batch {batch} on" for user, batch in streams.items()) or "none"


def _read(storage: Storage, path: str) -> Removals:
    data = read_if_there(storage.read, path, MOST_JSON)
    if data is None:
        return Removals()
    try:
        with reading_checksummed(_KIND, data, path, "a note of a removal", _CURE) as body:
            millis = integer(body["millis"])
            ended = bool(body["ended"])
            target = SnapshotRef.of_node(body["target"])
            by = str(body["by"])
            removed_expired = bool(body.get("tookExpired", False))
            removed = tuple([_decoded(node) for node in body["removed"]])
            snapshots = [node["snapshot"] for node in body.get("restored", ())]
            restored = frozenset(
                SnapshotRef.of_node(node).nonce for node in snapshots if node is not None
            )
    except FormatError as error:
        return Removals(doubts=(error.message,))
    name = path.rpartition("/")[2]
    return Removals(
        removed=tuple(
            [
                replace(
                    entry,
                    millis=millis,
                    ended=ended,
                    target=target,
                    by=by,
                    removed_expired=removed_expired,
                    note=name,
                )
                for entry in removed
            ]
        ),
        restored=restored,
    )


def _decoded(node: Mapping[str, Any]) -> Removed:
    return Removed(
        snapshot=SnapshotRef.of_optional_node(node["snapshot"]),
        uuids=tuple(map(str, node["uuids"])),
        user=str(node["user"]),
        identifier=integer(node["identifier"]),
        query=optional_text(node["query"]),
        certain=bool(node["certain"]),
        stood=bool(node.get("stood", False)),
        published=bool(node.get("published", False)),
    )


def _read_old(storage: Storage) -> Removals:
    """The removals that older releases have noted. They noted only nonces."""
    try:
        nonces = _old_nonces(storage)
    except FormatError as error:
        return Removals(doubts=(error.message,))
    return Removals(
        removed=tuple(Removed(snapshot=SnapshotRef(id=0, nonce=nonce)) for nonce in nonces)
    )


def _forget_old(storage: Storage, nonces: set[str]) -> None:
    """Removes nonces from the list that older releases read. A list that cannot be read stays as it
    is.
    """
    with suppress(FormatError):
        before = _old_nonces(storage)
        left = [nonce for nonce in before if nonce not in nonces]
        if left != before:
            storage.write(_OLD_PATH, encode_checksummed(_OLD_KIND, {"nonces": left}))


def _old_nonces(storage: Storage) -> list[str]:
    try:
        data = storage.read(_OLD_PATH, MOST_JSON)
    except NotFound:
        return []
    what = "a list of removed snapshots"
    with reading_checksummed(_OLD_KIND, data, _OLD_PATH, what, _CURE) as body:
        return [str(nonce) for nonce in body["nonces"]]
