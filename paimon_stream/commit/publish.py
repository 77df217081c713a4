"""Publishes one staged snapshot, K: puts it atomically, and checks that it lies in the table's
lineage.

`put` creates `snapshot-K`. If the storage does not report whether the file was created, the same
bytes are put again until it reports that. The result is the same whichever put succeeds, and after
K exists, no delayed put can create it.

`confirm` then looks at the snapshots around K. A paused writer may create an id again, outside the
lineage, after that id expired or was rolled back. Such a snapshot is *void*; exactly-once.md §5 has
the rules. A folder may have very many snapshots, so the snapshots are not listed in each commit.
While K-1 exists with the nonce of our base, no expiry has reached K+1, because expiry deletes the
oldest snapshots first. So K+1 alone shows whether there is any id above K. There is one exception:
a rollback to K-1 itself, between other commits. So only a *swift* attempt, whose base was read just
now, relies on the neighbours alone. Every other attempt looks at all ids.

Invariants: the answer is `Landed` only for a commit that is part of the table, and `Lost` only for
one that is not. `proven` says that the commit can never become part of the table, so its metadata
may be deleted. If the snapshot was visible, the metadata that a tag of it needs stays. Every other
case is `CommitUnknown`, and nothing was deleted.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from paimon_stream import errors
from paimon_stream.commit.attempts import RetryBudget, advice_if_unknown
from paimon_stream.commit.staged import Staged
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    CorruptMetadata,
    NotFound,
    StorageError,
    Unavailable,
)
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.together import Request
from paimon_stream.table.lineage import has_file, in_lineage
from paimon_stream.table.live import live_files
from paimon_stream.table.table import Table

_ROUNDS = 20
"""How often `confirm` looks again when snapshots vanish meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The outcome of a put: the snapshot's file has our bytes, but the snapshot is not confirmed
    yet.

    Attributes:
        doubted: whether the put was repeated because the answer to it was lost. The first put may
            have created the file.
    """

    doubted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The outcome that the snapshot is part of the table.

    Attributes:
        newest: whether no later snapshot existed when `confirm` looked.
    """

    newest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The outcome that the snapshot is not part of the table.

    Attributes:
        proven: whether the snapshot never will be part of it. If that is not proven, another writer
            may still publish a snapshot that was built on this one.
        was_visible: whether its file was there for a while. Then somebody may have tagged it.
    """

    proven: bool
    was_visible: bool = False


class Publisher:
    """Publishes snapshots to one table. `same_table` says whether the table is still the one of the
    commit.
    """

    def __init__(self, table: Table, cache: TableCache, same_table: Callable[[], bool]) -> None:
        self._location = table.location
        self._types = table.partition_types
        self._snapshots = cache.snapshots
        self._manifests = cache.manifests
        self._same_table = same_table
        self._served = is_served(table.storage)

    # -- the put ----------------------------------------------------------------------------------
    def put(
        self, staged: Staged, retry_budget: RetryBudget, usable: Callable[[], bool]
    ) -> Placed | Lost:
        """Creates the snapshot's file.

        Args:
            staged: the staged snapshot.
            retry_budget: the remaining retries.
            usable: whether the staging is still young enough to be put again.

        Raises:
            CommitUnknown: the outcome stays open.
            StorageError, CommitContended, TableReplaced: nothing is published.
        """
        problem: errors.PaimonStreamError
        doubted = False
        while True:
            try:
                result = self._snapshots.create_snapshot(staged.snapshot, staged.content)
            except Unavailable as lost_answer:
                problem = lost_answer
            # `CommitContended` is raised while somebody else holds the lock of a catalog.
            except (StorageError, CommitContended, errors.TableReplaced) as refused:
                if not doubted:
                    raise
                raise self._unknown(staged, refused) from refused
            else:
                if result is PutResult.CREATED:
                    return Placed(doubted=doubted)
                answer = self._read_holder(staged, doubted=doubted)
                if isinstance(answer, Placed | Lost):
                    return answer
                problem = answer
            doubted = True  # this put or an earlier one may have created the file
            if retry_budget.exhausted or not usable():
                raise self._unknown(staged, problem) from problem
            retry_budget.wait()

    def _read_holder(
        self, staged: Staged, *, doubted: bool
    ) -> Placed | Lost | errors.PaimonStreamError:
        """The outcome of a put that found an existing file with the snapshot's id. If the outcome
        is not known, returns an error with the reason, and does not raise it. `doubted` says
        whether an earlier put may have created the file.
        """
        snapshot_id = staged.snapshot.id
        try:
            holder = self._snapshots.raw(snapshot_id)
        except (StorageError, errors.TableReplaced) as unreadable:
            return unreadable
        if holder is None:
            return NotFound(f"snapshot {snapshot_id} was there, and is gone")
        if self._is_ours(holder, staged):
            return Placed(doubted=False)  # an earlier put succeeded, but its answer got lost
        return Lost(proven=not doubted)

    # -- the check after it -----------------------------------------------------------------------
    def confirm(
        self,
        staged: Staged,
        retry_budget: RetryBudget,
        *,
        doubted: bool,
        swift: bool,
        along: Sequence[Request],
        undo: Request,
    ) -> Landed | Lost:
        """Decides whether the snapshot that was put is part of the table. If it is outside the
        table's lineage, its file is removed.

        Args:
            staged: the staged snapshot.
            retry_budget: the remaining retries.
            doubted: whether an earlier put may already have created the file.
            swift: whether the base was read just now. If so, the first look is only at the
                neighbouring snapshots.
            along: requests that are sent in the same trip as that look. They must not raise.
            undo: is called if that look is not enough, before anything is removed. It must not
                raise.

        Raises:
            CommitUnknown: the answer is not known.
        """
        problem: Exception | None = None
        for look in range(_ROUNDS):
            try:
                neighbours_suffice = swift and look == 0 and not doubted
                if neighbours_suffice and self._is_next(staged, along):
                    return Landed(newest=True)
                undo()
                decided = self._look(staged, doubted=doubted)
            except (NotFound, CorruptMetadata) as vanished:
                problem = vanished  # a snapshot or list expired while it was read: look again
                continue
            except Unavailable as lost_answer:
                problem = lost_answer
                if retry_budget.exhausted:
                    break
                retry_budget.wait()
                continue
            except StorageError as refused:
                raise self._unknown(staged, refused) from refused
            if decided is not None:
                return decided
        raise self._unknown(staged, problem) from problem

    def _is_next(self, staged: Staged, along: Sequence[Request]) -> bool:
        """Whether our snapshot, K, directly follows the one on which it was staged, and K+1 does
        not exist. If the storage runs requests one after the other, those of `along` come first,
        and the one for K+1 comes last.
        """
        K = staged.snapshot.id
        base = staged.base.snapshot
        snapshots = self._snapshots
        assert base is not None  # without a base, the look is not swift
        looks = (
            self._same_table,
            partial(snapshots.raw, K),
            partial(snapshots.stands, base),
            partial(snapshots.exists, K + 1),
        )
        answers = snapshots.storage.together([*along, *looks])
        same_table, content, stands, follows = answers[len(along) :]
        return same_table and self._is_ours(content, staged) and stands and not follows

    def _look(self, staged: Staged, *, doubted: bool) -> Landed | Lost | None:
        """Looks once at the snapshots around our snapshot. None if they changed meanwhile.
        `doubted` says whether an earlier put may have created the file.
        """
        K = staged.snapshot.id
        base = staged.base.snapshot
        if not self._same_table():
            return self._void(staged, proven=True)  # another table: the next attempt reports it
        content = self._snapshots.raw(K)
        ids = self._snapshots.ids()
        if ids and ids[-1] > K:
            return self._look_above(staged, doubted=doubted)
        if content is None:
            return None  # neither K nor any id above exists: look again; in the end it is unknown
        if not self._is_ours(content, staged):
            # A writer that does not publish atomically has replaced our snapshot (R2.3).
            return Lost(proven=False)
        if base is None or self._snapshots.stands(base):
            return Landed()
        return self._look_below(staged)

    def _look_below(self, staged: Staged) -> Landed | Lost | None:
        """Decides by the snapshots below our snapshot, if the base is gone or was replaced:
        `Landed` if the base has expired, `Lost` if it was rolled back. None if the snapshots
        changed meanwhile. Raises `CommitUnknown` if neither is proven.
        """
        K = staged.snapshot.id
        ids = self._snapshots.ids()
        is_newest_id = bool(ids) and ids[-1] == K
        if not is_newest_id:
            return None
        ids_below = ids[:-1]
        if not ids_below:
            return Landed()
        if self._snapshots.rolled_back_to(ids_below):
            return self._void(staged, proven=False)
        raise self._unknown(
            staged,
            f"snapshot {K - 1}, on which it was built, is gone, and nothing shows whether it expired or the "
            f"table was rolled back to snapshot {ids_below[-1]}",
        )

    def _look_above(self, staged: Staged, *, doubted: bool) -> Landed | Lost | None:
        """Decides by the snapshots above our snapshot, K: `Landed` if they were built on K, `Lost`
        if they were not. None if they show nothing. `doubted` says whether an earlier put may have
        created the file.

        K may have expired since then. In that case a writer that does not confirm may have created
        K and K+1 again, one built on the other. So a K+1 that was not built on ours proves the loss
        only if it is part of the table, or while K still holds our bytes.
        """
        K = staged.snapshot.id
        following = self._snapshots.find(K + 1)
        if following is not None and self._in_base_of(following, staged):
            try:
                self._manifests.base_and_delta(staged.snapshot)  # raises if they are gone
            except (NotFound, CorruptMetadata):  # expiry has removed its lists
                self._remove(staged)
            return Landed()
        stands = self._is_ours(self._snapshots.raw(K), staged)
        # If K has our bytes after K+1 was found missing, K was created after K+1 had expired.
        if stands and (following is not None or not doubted):
            return self._void(staged, proven=True)
        latest = self._snapshots.latest()
        if following is not None and self._is_part_of_table(following, latest):
            return self._void(staged, proven=True)
        if latest is not None and latest.id > K and self._shows(latest, staged):
            self._remove(staged)
            return Landed()
        return None

    def _is_ours(self, content: bytes | None, staged: Staged) -> bool:
        """Whether this is the content of our snapshot's file. If the server of a catalog has
        written the file, its bytes may differ from ours, and the nonce decides.
        """
        if content is None:
            return False
        has_our_bytes = content == staged.content
        if has_our_bytes or not self._served:
            return has_our_bytes
        held = decode_snapshot(content, self._snapshots.path(staged.snapshot.id))
        return held.nonce == staged.snapshot.nonce

    def _void(self, staged: Staged, *, proven: bool) -> Lost:
        """Removes the file of a snapshot outside the table's lineage, and returns the loss.
        `proven` says whether the loss is proven. Raises `CommitUnknown` if the server of a catalog
        has such a snapshot.
        """
        if self._served and self._is_ours(self._snapshots.raw(staged.snapshot.id), staged):
            raise self._unknown(
                staged, "the catalog's server holds it, but it is not part of the table's history"
            )
        self._remove(staged)
        return Lost(proven=proven, was_visible=True)

    def _remove(self, staged: Staged) -> None:
        """Removes the file of a snapshot that has expired or is outside the table's lineage. A put
        has created the file of an expired snapshot again. It was a repeated put, because the answer
        to the first one got lost, or a late put of the same prepared files.
        """
        if not self._served:  # the server owns the files
            self._snapshots.remove_if_equal(staged.snapshot.id, staged.content)

    # -- attempts that were lost without a proof --------------------------------------------------
    def settled(self, staged: Staged, latest: Snapshot | None) -> bool | None:
        """Whether an attempt became part of the table although it seemed to be lost. None as long
        as no snapshot above the attempt's own shows that. Raises `CommitUnknown` if the snapshot
        that would show it has expired.
        """
        K = staged.snapshot.id
        if latest is None or latest.id <= K:
            if latest is not None and latest.nonce == staged.snapshot.nonce:
                return True
            return None
        following = latest if latest.id == K + 1 else self._snapshots.find(K + 1)
        if following is not None:
            if self._in_base_of(following, staged):
                return True
            if self._is_part_of_table(following, latest):
                return False
        if self._shows(latest, staged):
            return True
        raise self._unknown(staged, None)

    def _unknown(self, staged: Staged, reason: BaseException | str | None) -> CommitUnknown:
        """The error for a snapshot that may or may not be part of the table. If there is no
        `reason`, the message says that the snapshots that would decide this have expired.
        """
        snapshot = staged.snapshot
        cause = ", because the snapshots that would show it have expired"
        if reason is not None:
            cause = f": {reason}"
        return CommitUnknown(
            f"whether commit {snapshot.commit_identifier} of user {snapshot.commit_user!r} was published as snapshot "
            f"{snapshot.id} is not known{cause}. Nothing was deleted. {advice_if_unknown(snapshot.commit_identifier)}",
            user=snapshot.commit_user,
            batch=snapshot.commit_identifier,
            snapshot=snapshot.id,
        ).of_table(self._location)

    # -- the traces of a snapshot in later ones ---------------------------------------------------
    #
    # The functions below look for traces of our snapshot in later ones. Their answer is False only
    # if the later snapshot shows that it was not built on ours. A snapshot that changed no file and
    # no index leaves no trace. The table would miss nothing without this snapshot, so it counts as
    # part of the table. If a snapshot published only new index files, and these are gone, no trace
    # is left.

    def _in_base_of(self, following: Snapshot, staged: Staged) -> bool:
        """Whether the following snapshot was built on ours. If so, the base list of that snapshot
        has no manifest that our commit has merged away. It has our delta manifests, or has our
        files in manifests that were merged since then. If we only removed files, the list no longer
        has those files. Raises `NotFound` or `CorruptMetadata` if the snapshot expires meanwhile.
        """
        metas = self._manifests.read_list(
            following.base_manifest_list, following.base_manifest_list_size
        )
        in_our_lists = {meta.file_name for meta in staged.metas}
        merged_away = {meta.file_name for meta in staged.base.metas} - in_our_lists
        if any(meta.file_name in merged_away for meta in metas):
            return False
        if not staged.delta_names:
            return self._index_in(following, staged)
        if any(meta.file_name in staged.delta_names for meta in metas):
            return True
        if not staged.added:
            removed = staged.removed
            touched = {file.partition for file in removed}
            return self._live(metas, touched).isdisjoint(removed)
        return has_file(self._manifests, metas, in_our_lists, next(iter(staged.added)))

    def _is_part_of_table(self, snapshot: Snapshot, latest: Snapshot | None) -> bool:
        """Whether all snapshots from this one to the latest were built on one another."""
        return latest is not None and in_lineage(self._snapshots, snapshot, latest) is True

    def _shows(self, latest: Snapshot, staged: Staged) -> bool:
        """Whether a later snapshot has a manifest that our commit has written, or all files that
        our commit added. No other commit can have added these. Raises `CorruptMetadata`.
        """
        metas = self._manifests.base_and_delta(latest)
        inherited = {meta.file_name for meta in staged.base.metas}
        written = {meta.file_name for meta in staged.metas} - inherited
        if any(meta.file_name in written for meta in metas):
            return True
        if not staged.added:
            return False
        touched = {file.partition for file in staged.added}
        return self._live(metas, touched).issuperset(staged.added)

    def _live(
        self, metas: Iterable[ManifestFileMeta], partitions: Collection[bytes]
    ) -> frozenset[FileIdentity]:
        return frozenset(
            entry.identity for entry in live_files(self._manifests, metas, self._types, partitions)
        )

    def _index_in(self, following: Snapshot, staged: Staged) -> bool:
        """Whether the following snapshot was built on ours, according to its index files. Used if
        our snapshot changed no data file. Raises `CommitUnknown` if the index files show nothing.
        """
        changes = staged.changes.index
        name = following.index_manifest
        has_our_index = name == staged.snapshot.index_manifest
        if has_our_index or not changes:
            return True
        names_now = {entry.file.file_name for entry in self._manifests.index_entries(name)}
        added = {change.entry.file.file_name for change in changes if change.kind is FileKind.ADD}
        removed = {
            change.entry.file.file_name for change in changes if change.kind is FileKind.DELETE
        }
        has_some_that_we_added = not added.isdisjoint(names_now)
        if has_some_that_we_added:
            return True
        base = staged.base.snapshot
        has_some_that_we_removed = not removed.isdisjoint(names_now)
        if name == staged.base.index_manifest or has_some_that_we_removed:
            return False
        if not added:
            return True
        # Our index files were replaced later, or the writer of the following snapshot never saw
        # them. Expiry removes the oldest snapshot first. So if the base stands, no other snapshot
        # with our id can have expired before ours was published.
        holder = self._snapshots.find(staged.snapshot.id)
        if holder is not None and holder.nonce != staged.snapshot.nonce:
            return False
        if holder is not None and base is not None and self._snapshots.stands(base):
            return True
        raise self._unknown(
            staged,
            f"snapshot {following.id} has another index, and nothing shows whether it was built on this commit",
        )
