"""The refusals of a judgement. A refusal raises its error, or only logs a warning if an operator
has decided to continue.
"""

import datetime as dt
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paimon_stream import errors
from paimon_stream.commit.lost_facts import LostFacts, lost_facts
from paimon_stream.commit.refusals import CommitRefusals
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import ON_CHECKPOINT_RESET, ON_TABLE_CHANGE, ON_UNKNOWN_HISTORY
from paimon_stream.storage.base import Storage
from paimon_stream.table.fate import Answer, Fate
from paimon_stream.table.journal import Journal, JournalEntry, PreviousBatch

_LOG = logging.getLogger(__name__)


class StreamRefusals(CommitRefusals):
    """The refusals for one batch of one stream. The options say which of them an operator has
    decided about.
    """

    __slots__ = ()

    def checkpoint_reset(self, other_query: str | None, where: str) -> None:
        """Refuses the batch because another checkpoint of this stream wrote to the table."""
        writer = "a writer that left no query id"
        if other_query is not None:
            writer = f"query {other_query}"
        self.decide(
            ON_CHECKPOINT_RESET,
            errors.CheckpointReset,
            f"{writer} wrote here before under this stream's identity ({where}), so this checkpoint is new or "
            "the commit user is shared, and rows may be read from the source a second time",
            "Put the old checkpoint back, or give each stream a commit user of its own. With this checkpoint, Spark "
            "reads its source again: truncate the table first, or let the source begin after the rows that are here. "
            "Only then let it continue",
        )

    def checkpoint_rewound(self, cause: str) -> None:
        """Refuses the batch because the table is ahead of the checkpoint."""
        self.decide(
            ON_CHECKPOINT_RESET,
            errors.CheckpointRewound,
            f"{cause}, so the checkpoint was restored from an older copy, or two queries use copies of it",
            "Restore the newest checkpoint. With this one, Spark reads its source again from an older place: only if "
            "those rows may be written again, let it continue",
        )

    def published_by_earlier_run(self) -> errors.SharedCheckpoint:
        """The error for a batch that an earlier run has published, in a snapshot that has expired.
        Live files of that run's attempt show it.
        """
        return errors.SharedCheckpoint(
            f"{self.location}: while commit user {self.user!r} worked on batch {self.batch_id}, an earlier run of this "
            "stream, or another query on its checkpoint, published it: files that it had prepared are part of the "
            "table, and the snapshot has expired since. That batch stays, and this run published nothing. If the other "
            "run is still alive, stop it. Then start the query again: it continues after this batch.",
            **self._facts,
        )

    def later_run_began(self) -> errors.SharedCheckpoint:
        """The error for a run that is still alive after a later run of the stream has begun."""
        return errors.SharedCheckpoint(
            f"{self.location}: a later run of commit user {self.user!r} has begun, so this run stops before "
            f"batch {self.batch_id}. It published nothing of that batch. Two queries run on one checkpoint, "
            "or share a commit user. Stop one.",
            **self._facts,
        )

    def table_replaced(self, cause: str) -> None:
        """Refuses the batch because the table is not the one to which the stream wrote."""
        self.decide(
            ON_TABLE_CHANGE,
            errors.TableReplaced,
            f"{cause}: it was dropped and created again, and rows of earlier batches are not in it",
            "Start a new checkpoint to write everything again; or let it continue with this batch",
        )

    def created_later(self, *, done_millis: int, created_millis: int) -> None:
        """The table's first schema, or the branch, is younger than the checkpoint's last batch. The
        times (epoch milliseconds) are of two clocks.
        """
        seconds = (created_millis - done_millis) / 1000
        self.table_replaced(
            "the table or branch was created after this stream had finished an earlier batch, "
            f"{seconds:.3f} s later (it was made at {_utc(created_millis)} by the clock of the machine "
            f"that created it, and the checkpoint notes the batch at {_utc(done_millis)} by the clock of its "
            "file system; if these clocks differ by more than that, set them, and restart)"
        )

    def maybe_rolled_back(
        self, batch_id: int, cause: str = "the manifest lists that would show it are missing"
    ) -> None:
        """Refuses the judged batch because it is not known whether an earlier batch of ours is in
        the table: records contradict each other or are missing. `cause` says which records, and
        ends a sentence.
        """
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"batch {batch_id} was committed, and its snapshot is gone. Whether it has expired or was rolled back "
            f"is not known, so its rows may not be in the table: {cause}",
            f"Look for the rows of batch {batch_id} and of earlier ones, and write again what is missing. "
            "Then let it continue with this batch",
        )
        self.given_up.add(batch_id)

    def gone(self, batch_id: int, answer: Answer) -> None:
        """An earlier batch of ours was committed, and its snapshot is gone. Refuses the judged
        batch if that earlier one was rolled back, or may have been. Does nothing for any other
        fate.
        """
        if answer.fate is Fate.ROLLED_BACK:
            self.table_rolled_back(f"batch {batch_id} was committed, and {answer.why}")
        elif answer.fate is Fate.UNKNOWN:
            self.maybe_rolled_back(batch_id, answer.why)

    def maybe_have_had_rows(self, batch_id: int, cause: str) -> None:
        """Refuses the judged batch because the earlier batch `batch_id` may have had rows that were
        rolled back. That batch has no snapshot and no journal entry in the table, and is the last
        such batch before the judged one. `cause` says why its rows are not known, and ends a
        sentence.
        """
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"batch {batch_id} left no snapshot and no journal here. Whether it had no rows or was rolled back is not "
            f"known: {cause}",
            f"Look for the rows of batch {batch_id} and of earlier ones, and write again what is missing. "
            "Then let it continue with this batch",
        )
        self.given_up.add(batch_id)

    def lost_again(self, batch_id: int, own: Snapshot, cause: str) -> None:
        """Refuses the judged batch because an earlier batch may have been written again above our
        newest snapshot, and have been removed since. An operator had let the checkpoint continue
        over that snapshot. `cause` says what shows the removal, and ends a sentence.
        """
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"an operator had let the checkpoint of this stream continue although snapshot {own.id} has batch "
            f"{own.commit_identifier}. What was written again above that snapshot may be gone, and whether the table "
            f"has the rows of batch {batch_id} from before is not known: {cause}",
            f"Look for the rows of batch {batch_id} and of earlier ones, and write again what is missing. "
            "Then let it continue with this batch",
        )
        self.given_up.add(batch_id)

    def checkpoint_ahead(self, own: Snapshot) -> None:
        """Refuses the batch because batches between it and the stream's only snapshot may be
        missing. The table has nothing else of this stream.
        """
        first = own.commit_identifier + 1
        last = self.batch_id - 1
        between = f"batches {first} to {last} are"
        pronoun = "them"
        if first == last:
            between = f"batch {first} is"
            pronoun = "it"
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"the newest batch of this stream here is {own.commit_identifier} (snapshot {own.id}), {between} not "
            "known here, and the stream is not registered here: this may be a branch or a copy that was made "
            "before the checkpoint went on",
            f"Look for the rows of {pronoun}, and write again what is missing. Then let it "
            "continue with this batch",
        )
        self.given_up.add(last)

    def written_elsewhere(self, batch_id: int, branch: str) -> None:
        """Refuses the judged batch because the query has written an earlier batch in another
        branch, or in main, instead of in this branch.
        """
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"batch {batch_id} was written in branch {branch!r}, where this query wrote in place of this branch, so its "
            "rows, and those of other batches, are not in this history",
            f"Look for the rows of batch {batch_id} and of earlier ones. If branch {branch!r} has what is missing, make "
            "this history what that branch is, or write the rows again. Then let it continue with this batch",
        )
        self.given_up.add(batch_id)

    def left_nothing(self, first: int, last: int) -> None:
        """Logs batches that the checkpoint has done and that left nothing in the table. Batches
        without rows leave nothing, so this neither refuses nor warns.
        """
        _LOG.info("%s, commit user %r: %s", self.location, self.user, gap_in_words(first, last))

    def unproven(self, entry: JournalEntry) -> None:
        """Warns that no snapshot of this stream is left, and that nothing mentions the files of its
        last journalled batch. No record says that these files were removed, so the stream goes on.
        """
        files = [file.file_name for message in entry.messages for file in message.new_files]
        self.warn(
            "no snapshot of this stream is left, and the table's manifests mention none of the files of batch "
            f"{entry.batch_id}, the last one that was journalled: {errors.first_few(files)}. They may have been "
            "compacted; or another engine has rolled the table back, and the snapshots that got the same ids have "
            "expired. Look for the batch's rows. A longer snapshot.time-retained keeps what would show it."
        )

    def commit_lost(self, lost: PreviousBatch, there: Snapshot, storage: Storage) -> None:
        """Another commit of the lineage has the id of one of our snapshots.

        Args:
            lost: our batch, and its snapshot.
            there: the snapshot that has its id now.
            storage: the storage of the table.
        """
        self._lost(
            f"snapshot {lost.snapshot.id}, in which batch {lost.batch_id} of this stream was committed, now "
            f"holds commit {there.commit_identifier} of user {there.commit_user!r}",
            lost.batch_id,
            replace(
                lost_facts(storage, self.user, lost.batch_id, lost.snapshot),
                merges=_was_merged(storage, self.user, lost.batch_id),
            ),
            snapshot=lost.snapshot.id,
            by=there.commit_user,
        )

    def journalled_lost(self, entry: JournalEntry, foreign: Sequence[Snapshot]) -> None:
        """Refuses the judged batch because an earlier one is gone: it was committed above the base
        of its journal entry, and the snapshots `foreign` of other engines, ascending, stand there
        now.
        """
        above = "the table's first ones"
        if entry.base is not None:
            above = f"those above {entry.base.id}"
        users = ", ".join(sorted({repr(snapshot.commit_user) for snapshot in foreign}))
        ids = f"{foreign[0].id} to {foreign[-1].id}"
        if len(foreign) == 1:
            ids = str(foreign[0].id)
        files = [file for message in entry.messages for file in message.new_files]
        self._lost(
            f"batch {entry.batch_id} of this stream was committed, but its snapshot is gone, and of the "
            f"snapshots that stand there ({above}) user {users} made {ids}",
            entry.batch_id,
            replace(
                LostFacts.of(self.location, self.user, entry.batch_id, files), merges=entry.merges
            ),
            by=foreign[0].commit_user,
        )

    def _lost(
        self,
        cause: str,
        batch_id: int,
        lost: LostFacts,
        *,
        by: str,
        snapshot: int | None = None,
    ) -> None:
        """Refuses the judged batch, because a commit of the user `by` replaced the commit of an
        earlier batch.

        Args:
            cause: what shows the replacement; it begins a sentence.
            batch_id: the earlier batch.
            lost: what the earlier batch had committed.
            by: the commit user of the other commit.
            snapshot: the id that both snapshots have, if that is known.
        """
        known_snapshot = {}
        if snapshot is not None:
            known_snapshot = {"snapshot": snapshot}
        self.decide(
            ON_TABLE_CHANGE,
            errors.CommitLost,
            f"{cause}: a writer that does not publish atomically replaced it, or the table was rolled back "
            f"and written again. The rows of batch {batch_id} are not in the table: {lost.sentence[:-1]}",
            _cure_of_lost(lost, batch_id),
            lost_batch=batch_id,
            **known_snapshot,
            by=by,
            **lost.context,
        )

    def beside_the_line(self, lost: PreviousBatch, latest: Snapshot) -> None:
        """Refuses the batch because a snapshot of ours still exists, but the table's snapshots were
        not built on it.
        """
        # This is a `TableRolledBack`, although nobody rolled back: the class says that our last
        # snapshot is no longer part of the table, which is true. Operators know the case by that
        # class.
        self.decide(
            ON_TABLE_CHANGE,
            errors.TableRolledBack,
            f"batch {lost.batch_id} of this stream was committed as snapshot {lost.snapshot.id}, which still "
            f"stands, but the table's newest snapshot, {latest.id}, was not built upon it. The file LATEST "
            "named an old snapshot when that batch was committed, so the batch is beside the table's line of "
            "snapshots, and is not part of the table",
            f"Read the rows of snapshot {lost.snapshot.id} with PaimonTable.to_arrow(snapshot_id=…), write "
            "what is missing in the table again, and correct the hint with 'paimon-stream repair-hints "
            "--yes'. Then let it continue with this batch",
        )

    def table_rolled_back(self, cause: str) -> None:
        """Refuses the batch because our last snapshot is gone from the lineage."""
        self.decide(
            ON_TABLE_CHANGE,
            errors.TableRolledBack,
            f"{cause}: the table was rolled back, or a writer that does not publish atomically replaced a snapshot, "
            "and rows of earlier batches are not in it",
            "Write only the rows of those batches again. Or empty the table with 'paimon-stream truncate', and start a "
            "new checkpoint that reads the source from its start; beside the rows that are there, it would write these "
            "twice. Or let it continue with this batch",
        )


def _cure_of_lost(lost: LostFacts, batch_id: int) -> str:
    """What to do about an earlier batch whose commit was replaced. A sentence without its end."""
    if lost.merges:
        return (
            f"The files of batch {batch_id} fit only the rows into which it was merged. Merge its rows again, with "
            "PaimonTable.merge. Let other engines only read this table. Then let it continue with this batch"
        )
    return (
        f"If it was no rollback, commit the files again and start the query: {lost.cure}. Otherwise write the rows "
        "again from the source. Let other engines only read this table. Or let it continue with this batch"
    )


def _was_merged(storage: Storage, user: str, batch_id: int) -> bool:
    """Whether the journal says that a batch was merged into rows of the table. It is for a message,
    so no error is raised.
    """
    with suppress(errors.FormatError, errors.StorageError):
        entry = Journal(storage, user).read(batch_id)
        return entry is not None and entry.merges
    return False


def gap_in_words(first: int, last: int) -> str:
    """What a gap in the batches of a stream may mean."""
    batches = f"batches {first} to {last}"
    if first == last:
        batches = f"batch {first}"
    return (
        f"the checkpoint records {batches} as done, but no snapshot and no journal here shows that: either no rows "
        "came, or the table's folder was restored from an older copy, of which the folder itself shows no trace. If "
        "it was restored, write those rows again."
    )


def _utc(millis: int) -> str:
    """The time in UTC of epoch milliseconds. If no calendar date exists for them, the number
    itself.
    """
    try:
        moment = dt.datetime.fromtimestamp(millis / 1000, dt.timezone.utc)
    except (OverflowError, OSError, ValueError):
        return f"{millis} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis % 1000:03d}Z"
