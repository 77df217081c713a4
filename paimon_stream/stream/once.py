"""A batch write with an identity takes effect once, even if several processes call it several
times.

The write is batch 0 of a stream whose commit user contains the identity. So the judgement, the
journal, the claims and the commit are those of a stream (one_batch.py), and each call is a new run.
Only the receipt is added (table/receipts.py), because such a stream has no later batches. The
receipt still records the write after its snapshot has expired. So the folder of the commit user can
be removed.

Invariants:

- The receipt is written after the commit, and the folder of the user is removed after the receipt.
  So a call that sees neither sees the table as it was before the commit.
- A call looks for the receipt before its judgement, and again before its commit. A call that was
  judged after the folder was removed finds the receipt then. A call that was judged before finds
  the snapshot above the one of its judgement, or a gap there, and publishes nothing
  (commit/window.py, fence.py).
- If only live files show that the write was committed, there is no receipt, and the folder stays.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from paimon_stream import errors
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import ONCE_PREFIX
from paimon_stream.options import STREAM_COMPACT
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import MAIN, branch_of, whole_of
from paimon_stream.storage.together import Request
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.batch_write import Replaced, WrittenRows
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.steps import JudgedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch, Reuse
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.branch_identity import BranchIdentity, read_identity
from paimon_stream.table.fate import Answer, Fate, cut_below, fate_of
from paimon_stream.table.layout import user_folder
from paimon_stream.table.receipts import AskedWrite, Receipt, read_receipt, write_receipt
from paimon_stream.table.removals import read_removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

_BATCH: Final = 0
_MOST_LOOKS: Final = 3
"""How often a call looks for what other calls have done. Each further look follows a commit of
another call, so the second one nearly always decides.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceWrite:
    """A batch write that takes effect once.

    Attributes:
        identity: the name under which the write takes effect once.
        asked: what the caller asks the write to do.
        storage: the table, or a branch of it.
        options: the options of the writer, which override the table's.
        replaced: what the rows replace; None if they are appended.
        write_rows: writes the rows to a table, with this numbering, for this commit user. Publishes
            nothing, except a schema that the rows need.
        may_write_again: whether `write_rows` can be called once more.
        after_commit: is called after publishing.
        runtime: the clock and the ids.
        observer: gets the steps of the batch.
    """

    identity: str
    asked: AskedWrite
    storage: Storage
    options: Mapping[str, str]
    replaced: Replaced | None
    write_rows: Callable[[Table, Numbering | None, str], WrittenRows]
    may_write_again: bool
    after_commit: AfterPublishing
    runtime: Runtime
    observer: BatchObserver = NO_OBSERVER

    @property
    def user(self) -> str:
        """The commit user."""
        return f"{ONCE_PREFIX}{self.identity}"

    def error(
        self, kind: type[errors.PaimonStreamError], sentences: str
    ) -> errors.PaimonStreamError:
        """Makes an error that names this write."""
        return kind(
            f"{self.storage.location}: {self.asked.kind} with identity {self.identity!r}: {sentences}",
            table=self.storage.location,
            identity=self.identity,
            user=self.user,
        )


class _DoneMeanwhileError(Exception):
    """Another call has written the receipt."""


def write_once(write: OnceWrite) -> CommitReport:
    """Writes and publishes the rows, unless an earlier call with the same identity has published
    them. In that case the outcome of the report is `already committed`.

    Raises:
        IdentityUsed: a call with this identity had other rows.
        TableRolledBack: the rows were published, and are not part of the table any more.
        HistoryUnknown: it is not known whether the rows are part of the table.
        SharedCheckpoint: another call with this identity works at the same time.
        PaimonStreamError: the errors of `one_batch`, and of `write_rows`.
    """
    with _explained(write):
        for look in range(_MOST_LOOKS):
            report = _report_of_earlier(write)
            if report is not None:
                return report
            try:
                return _write(write, is_first=look == 0)
            except errors.CommitVetoed as vetoed:
                if not isinstance(vetoed.__cause__, _DoneMeanwhileError):
                    raise
            except errors.SharedCheckpoint as shared:
                has_published = "snapshot" in shared.context
                if not has_published or look == _MOST_LOOKS - 1:
                    raise
        raise write.error(errors.SharedCheckpoint, "other calls kept coming between.")


# -- what earlier calls have done -----------------------------------------------------------------
def _report_of_earlier(write: OnceWrite) -> CommitReport | None:
    """The report of a write that has a receipt; None if there is no receipt. Raises what
    `write_once` raises.
    """
    snapshots = SnapshotStore(write.storage, write.runtime)
    looks: list[Request] = [
        partial(read_receipt, write.storage, write.identity, SchemaStore(write.storage)),
        snapshots.latest,
    ]
    receipt, latest = write.storage.together(looks)
    if receipt is None:
        receipt = _inherited(write, latest)
        if receipt is None:
            return None
        fate = Fate.EXPIRED
    else:
        fate = _fate_of_rows(write, receipt, snapshots, latest)
        _clear(write)
    difference = receipt.asked.difference(write.asked)
    if difference is not None:
        raise write.error(
            errors.IdentityUsed,
            f"this identity was used before, and {difference}. Nothing was written now, and what was written then "
            "stays. Take another identity for other rows.",
        )
    stands = receipt.snapshot is not None and fate is Fate.IN_TABLE
    return CommitReport(
        location=write.storage.location,
        user=write.user,
        identifier=_BATCH,
        outcome="already committed",
        snapshot_id=receipt.snapshot.id if receipt.snapshot is not None and stands else None,
    )


def _fate_of_rows(
    write: OnceWrite, receipt: Receipt, snapshots: SnapshotStore, latest: Snapshot | None
) -> Fate:
    """What became of the snapshot that a receipt names: it is part of the table, or has expired.
    Raises `TableRolledBack` if it was removed, and `HistoryUnknown` if that cannot be told.
    """
    if receipt.snapshot is None:
        return Fate.IN_TABLE  # there was nothing that could be taken away
    answer = fate_of(snapshots, receipt.snapshot, latest, stood_millis=receipt.stood_millis)
    if answer.is_held is None:
        raise _not_known(write, answer)
    if not answer.is_held:
        raise _taken_away(write, receipt.snapshot.id)
    return answer.fate


def _inherited(write: OnceWrite, latest: Snapshot | None) -> Receipt | None:
    """The receipt of main, if the rows of that receipt came with the branch that is written. None
    if they did not come with the branch, or if main itself is written. Raises `HistoryUnknown`, and
    what `read_receipt` raises.

    Args:
        write: the write.
        latest: the newest snapshot of the branch.
    """
    if branch_of(write.storage) == MAIN:
        return None
    main = whole_of(write.storage)
    main_snapshots = SnapshotStore(main, write.runtime)
    looks: list[Request] = [
        partial(read_receipt, main, write.identity, SchemaStore(main)),
        partial(read_identity, write.storage),
        main_snapshots.latest,
    ]
    receipt: Receipt | None
    receipt, branch, latest_of_main = main.together(looks)
    if receipt is None or receipt.snapshot is None or latest is None:
        return None
    if branch is None:
        if receipt.snapshot.id > latest.id:
            return None
        raise _not_known(
            write, Answer(fate=Fate.UNKNOWN, why="where the branch was made is not known")
        )
    if branch.snapshot is None or _came_after(write, receipt.snapshot, branch.snapshot, branch):
        return None
    answer = fate_of(
        main_snapshots, receipt.snapshot, latest_of_main, stood_millis=receipt.stood_millis
    )
    if not answer.is_held:
        why = "main has lost the snapshot, and whether that was before the branch was made is not known"
        raise _not_known(write, Answer(fate=Fate.UNKNOWN, why=why))
    return receipt


def _came_after(
    write: OnceWrite, written: SnapshotRef, point: SnapshotRef, branch: BranchIdentity
) -> bool:
    """Whether main wrote the rows after the snapshot from which the branch was made, so that the
    branch does not have them. If a rollback has taken that snapshot from main, ids were used again,
    and the branch may have rows that main wrote again. Raises `HistoryUnknown`.

    Args:
        write: the write.
        written: the snapshot of main's receipt.
        point: the snapshot from which the branch was made.
        branch: the identity of the branch.
    """
    main = SnapshotStore(whole_of(write.storage), write.runtime)
    latest = main.latest()
    made_millis = branch.made_millis
    if fate_of(main, point, latest, stood_millis=made_millis).is_held:
        return written.id > point.id
    removals = read_removals(main.storage)
    cut = cut_below(main, removals, point, latest, stood_millis=made_millis)
    if cut is not None and written.id <= cut.id:
        return False
    had_earlier = any(removed.user == write.user for removed in removals.removed)
    if written.id > point.id and not had_earlier:
        return True
    why = "main was rolled back after the branch was made, and may have written the rows since then"
    raise _not_known(write, Answer(fate=Fate.UNKNOWN, why=why))


# -- this call ------------------------------------------------------------------------------------
def _write(write: OnceWrite, *, is_first: bool) -> CommitReport:
    """Runs the batch, and writes its receipt. `is_first` says whether no rows were written yet in
    this call. Raises what `one_batch` raises.
    """
    ids = write.runtime.ids
    writer = StreamWriter(
        storage=write.storage,
        identity=WriterIdentity(
            user=write.user,
            query_id=write.user,
            run_id=ids.uuid(),
            token=ids.uuid(),
        ),
        options={**write.options, STREAM_COMPACT.key: "off"},  # nothing compacts behind it
        replaced=write.replaced,
        runtime=write.runtime,
        observer=write.observer,
    )
    rows = Rows(
        write=partial(_written, write, is_first=is_first),
        again=write.may_write_again,
        before_commit=partial(_require_not_done, write),
    )
    settled = writer.write(Batch(batch_id=_BATCH, offsets_hash=write.asked.digest), rows)
    _record(write, settled)
    newest = settled.standing.newest
    if settled.report.outcome == "committed" and newest is not None:
        write.after_commit(settled.table, newest)
    return settled.report


def _written(write: OnceWrite, judged: JudgedBatch, *, is_first: bool) -> WrittenBatch:
    """The files of the batch: those that an earlier call has prepared, or new ones. `is_first` says
    whether no rows were written yet in this call.
    """
    if isinstance(judged.verdict, Reuse):
        return judged.written(judged.verdict.entry.messages, phases=judged.phases)
    if not (is_first or write.may_write_again):
        raise write.error(errors.SharedCheckpoint, "the rows were read already.")
    numbering = judged.numbers()
    rows = write.write_rows(judged.table, numbering, write.user)
    millis = judged.phases.get("write", 0.0) + (rows.millis or 0.0)
    return judged.on(rows.table).written(
        rows.messages, numbering=numbering, phases={**judged.phases, "write": millis}
    )


def _require_not_done(write: OnceWrite, messages: tuple[CommitMessage, ...]) -> None:
    """Raises `_DoneMeanwhileError` if another call has written the receipt since this call looked
    for it. After that error, the files of `messages` are removed.
    """
    if read_receipt(write.storage, write.identity, SchemaStore(write.storage)) is not None:
        raise _DoneMeanwhileError(f"{len(messages)} messages are not published")


def _record(write: OnceWrite, settled: SettledBatch) -> None:
    """Writes the receipt, and removes the folder of the user. The rows are in the table already, so
    a failure is only logged, and the next call with this identity writes the receipt.
    """
    memory = settled.standing.memory
    own = None if memory is None else memory.own
    outcome = settled.report.outcome
    if memory is None or (outcome == "already committed" and own is None):
        return
    snapshot = None if own is None else own.snapshot
    try:
        written_rows: int | None = settled.report.rows
        if outcome == "already committed" and snapshot is not None:
            present = settled.run.snapshots.find(snapshot.id)
            written_rows = None if present is None else BatchSummary.of(present.properties).rows
        receipt = Receipt(
            identity=write.identity,
            schema_digest=settled.standing.known_target.digest,
            asked=write.asked,
            snapshot=snapshot,
            written_rows=written_rows,
            stood_millis=memory.own_stood_millis or write.runtime.clock.now_millis(),
        )
        write_receipt(write.storage, receipt)
    except errors.PaimonStreamError as error:
        _LOG.warning(
            "%s: the receipt of identity %r could not be written: %s The next call with this identity writes it.",
            write.storage.location,
            write.identity,
            error,
        )
        return
    _clear(write)


def _clear(write: OnceWrite) -> None:
    """Removes the folder of the identity's commit user, because the receipt records all that
    matters. Never raises an error of a storage.
    """
    storage = write.storage
    folder = user_folder(write.user)
    try:
        paths = [stat.path for stat in storage.list_files(folder)]
        failed = storage.delete_all(paths) if paths else {}
        if failed:
            raise next(iter(failed.values()))
        if paths and storage.has_folders:
            storage.delete(folder)
    except errors.StorageError as error:
        _LOG.warning(
            "%s: files of identity %r stay: %s The next call with this identity removes them.",
            storage.location,
            write.identity,
            error,
        )


# -- errors ---------------------------------------------------------------------------------------
_REPEAT: Final = "Repeat the call with the same identity: it looks for the rows first."
_WORDS: Final[Mapping[type[errors.PaimonStreamError], str]] = {
    errors.SharedCheckpoint: (
        "another call with this identity works at the same time, or has just published its rows. This call has "
        f"published nothing. {_REPEAT}"
    ),
    errors.CommitUnknown: (
        f"whether the rows were published is not known. Nothing was deleted. {_REPEAT}"
    ),
    errors.CheckpointRewound: (
        "this identity was used before, with other rows: the kind of write, the partition, the columns or the number "
        "of rows was another one. Nothing was written now, and what was written then stays. Take another identity for "
        "other rows."
    ),
    errors.CheckpointReset: (
        "a stream or another writer has this commit user. Nothing was written. Take another identity."
    ),
    errors.TableReplaced: (
        "a call with this identity had begun in another table, which was at this place before. Nothing was written. "
        "Take another identity."
    ),
}
"""What an error of the stream's protocol means to the caller of a batch write."""


@contextmanager
def _explained(write: OnceWrite) -> Iterator[None]:
    """A context in which errors of the stream's protocol speak of the identity instead of batches
    and checkpoints.
    """
    try:
        yield
    except (errors.ReplayError, errors.CommitLost, errors.CommitUnknown) as error:
        if "identity" in error.context and type(error) is not errors.SharedCheckpoint:
            raise
        raise _in_words_of(write, error) from error


def _in_words_of(write: OnceWrite, error: errors.PaimonStreamError) -> errors.PaimonStreamError:
    """The error that the caller gets for an error of the stream's protocol."""
    match error:
        case errors.TableRolledBack() | errors.CommitLost():
            return _taken_away(write, error.context.get("snapshot"))
        case errors.HistoryUnknown():
            why = "the snapshots that would show it have expired, or records contradict each other"
            return _not_known(write, Answer(fate=Fate.UNKNOWN, why=why))
        case errors.CheckpointRewound():
            return write.error(errors.IdentityUsed, _WORDS[errors.CheckpointRewound])
    sentences = _WORDS.get(type(error))
    return error if sentences is None else write.error(type(error), sentences)


def _taken_away(write: OnceWrite, snapshot_id: int | None) -> errors.PaimonStreamError:
    """The error for rows that were published, and are not part of the table any more."""
    where = "" if snapshot_id is None else f" in snapshot {snapshot_id}"
    return write.error(
        errors.TableRolledBack,
        f"its rows were published{where}, and are not in the table any more: the table was rolled back, or another "
        "engine replaced the snapshot. Nothing was written now. If the rows are wanted, write them with another "
        "identity.",
    )


def _not_known(write: OnceWrite, answer: Answer) -> errors.PaimonStreamError:
    """The error for rows of which it is not known whether they are part of the table."""
    return write.error(
        errors.HistoryUnknown,
        f"whether its rows are in the table is not known: {answer.why}. Nothing was written now. If a repeated call "
        "says the same, look for the rows, and write them with another identity if they are missing.",
    )
