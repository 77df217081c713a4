"""Small changes to the real code that the simulation must catch. The list grows with each defect
that anybody ever finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from paimon_stream.api import doctor
from paimon_stream.commit import checks, committer, publish, sequence, table_commit
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.publish import Landed, Lost, Publisher
from paimon_stream.errors import Unavailable
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.storage.base import Bundle, PutResult
from paimon_stream.stream import (
    dead_attempts,
    gather,
    judging,
    last_batch,
    memory,
    one_batch,
    own_history,
    publishing,
    recommit,
    settling,
)
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.fence import RunFence
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.steps import PublishedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh
from paimon_stream.table import lineage, message_files
from paimon_stream.table.fate import Answer, Fate
from paimon_stream.table.layout import LATEST_HINT, snapshot_path
from paimon_stream.table.removals import Removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore, Window
from tests.simulation import (
    planted_catalogs,
    planted_changes,
    planted_compaction,
    planted_deletes,
    planted_dynamic,
    planted_figures,
    planted_hdfs,
    planted_histories,
    planted_in_stream,
    planted_maintenance,
    planted_promises,
    planted_real_files,
    planted_row_ids,
    planted_vectors,
    rules,
)
from tests.simulation.bug import BUGS, Bug, Patch, bug


def _fresh(snapshots: SnapshotStore) -> Fresh:
    latest = snapshots.latest()
    return Fresh(seen=None if latest is None else SnapshotRef.of(latest))


# -- staging
# -------------------------------------------------------------------------------------------


@bug(
    "On a store, a snapshot is sent in the trip of its manifests.",
    "object store",
    rule=rules.WHOLE,
    why="The snapshot may land and a manifest not.",
    seed=1,
)
def the_manifests_are_still_on_their_way(patch: Patch) -> None:
    class Late(Bundle):
        def flush(self) -> None:
            waiting.append(super().flush)

    def publish(self: SnapshotStore, snapshot: Any, content: bytes) -> PutResult:
        sent = [*waiting, partial(real, self, snapshot, content)]
        waiting.clear()
        return self.storage.together(sent)[-1]  # type: ignore[no-any-return]

    waiting: list[Any] = []
    real = SnapshotStore.create_snapshot
    patch.setattr(committer, "Bundle", Late)
    patch.setattr(SnapshotStore, "create_snapshot", publish)


@bug(
    "A write of several files of which one fails counts as done.",
    rule=rules.WHOLE,
    why="A snapshot is published without the file that failed.",
    seed=86,
)
def some_files_are_enough(patch: Patch) -> None:
    def flush(self: Bundle) -> None:
        try:
            real(self)
        except Unavailable:
            self._files, self._held = {}, 0

    real = Bundle.flush
    patch.setattr(Bundle, "flush", flush)


# -- judging
# -------------------------------------------------------------------------------------------


@bug(
    "Nobody judges the first batch of a run.",
    "twin",
    rule=rules.ONCE,
    why="A restarted run writes a batch that the table has.",
)
def no_judge(patch: Patch) -> None:
    patch.setattr(judging, "judge_evidence", lambda found, refuse: _fresh(found.snapshots))


@bug(
    "A batch counts as committed if any journal entry of it exists.",
    "twin",
    rule=rules.ACKNOWLEDGED,
    why="The journal is written before the commit, which may have failed.",
)
def the_journal_is_taken_for_a_commit(patch: Patch) -> None:
    def judge(found: Evidence, refuse: Any) -> Any:
        if found.entry is not None:
            return AlreadyCommitted(seen=_fresh(found.snapshots).seen, snapshot=None, dead=None)
        return real(found, refuse)

    real = judging.judge_evidence
    patch.setattr(judging, "judge_evidence", judge)


@bug(
    "A run does not look for its own snapshots.",
    "expirer",
    rule=rules.NO_FALSE_ALARM,
    why="The journal says that the batch was committed, and no snapshot is found, so it counts as rolled back.",
)
def own_snapshots_are_overlooked(patch: Patch) -> None:
    patch.setattr(own_history, "is_own", lambda snapshot, identity: False)


@bug(
    "A window with a gap counts as complete.",
    "twin",
    "expirer",
    "batch writer",
    rule=rules.ONCE,
    why="The batch was published in the gap by another run, and is written again.",
    seed=1193,
)
def a_gap_counts_as_nothing(patch: Patch) -> None:
    def window(self: SnapshotStore, after: int, upto: int) -> Window:
        return Window(snapshots=real(self, after, upto).snapshots, complete=True)

    real = SnapshotStore.window
    patch.setattr(SnapshotStore, "window", window)


@bug(
    "Nobody looks what others have published under the same user since the batch was judged.",
    "twin",
    rule=rules.ONCE,
    why="A twin has published the batch meanwhile.",
    seed=5,
)
def others_are_overlooked(patch: Patch) -> None:
    patch.setattr(committer, "published_since", lambda *given: None)


@bug(
    "A run does not notice that its last snapshot was replaced or rolled back.",
    "rollback",
    rule=rules.LOSSES_REPORTED,
    why="The run goes on after its last batch was taken away.",
    seed=4,
)
def a_lost_commit_is_followed(patch: Patch) -> None:
    patch.setattr(memory, "fate_of", lambda *given, **known: Answer(fate=Fate.EXPIRED))
    patch.setattr(memory, "_has_seen", lambda *given: True)
    patch.setattr(committer, "check_lineage", lambda *given: None)


@bug(
    "A restarted run does not compare the journal with the table.",
    "rollback",
    rule=rules.LOSSES_REPORTED,
    why="The run goes on after its last batch was taken away.",
)
def a_rollback_is_taken_for_an_expiry(patch: Patch) -> None:
    patch.setattr(StreamRefusals, "table_rolled_back", lambda *given: None)


@bug(
    "A table that was dropped and created again counts as the same one.",
    "dropper",
    rule=rules.LOSSES_REPORTED,
    why="The run goes on in the new table, which lacks its rows.",
    seed=4,
)
def any_table_is_the_same(patch: Patch) -> None:
    patch.setattr(SchemaStore, "first_digest", lambda self: "always the same")
    patch.setattr(StreamRefusals, "table_replaced", lambda *given: None)


@bug(
    "The fence always holds, whoever has begun a run or published late, and no run looks for its claim.",
    "twin",
    "expirer",
    "batch writer",
    rule=rules.ONCE,
    why="A twin has published the batch in a gap.",
    seed=63,
)
def the_fence_always_holds(patch: Patch) -> None:
    patch.setattr(RunFence, "__call__", lambda self: True)
    patch.setattr(Claims, "holds", lambda self: True)


@bug(
    "The fence answers for a gap although an earlier run may have attempted the batch.",
    "hasty keeper",
    "keeper of checkpoints",
    "twin",
    rule=rules.ONCE,
    why="An earlier run has published the batch in a gap.",
    seed=205,
    within=1,
    script=[
        *([0], [0], [0], [2], [0], [0, 0, 0, 0, 0, 0, 9], [0, 15, 4, 5, 0]),
        *([0, 0, 0, 0, 0, 0, 0, 10], [4]),
    ],
)
def the_fence_forgets_earlier_runs(patch: Patch) -> None:
    patch.setattr(RunFence, "__call__", lambda self: bool(self.claims.holds()))


@bug(
    "A run trusts the id up to which it has looked, though a rollback went below it, and not its claim.",
    "rollback",
    "batch writer",
    "twin",
    rule=rules.ONCE,
    why="A twin has published the batch below that id, after a rollback.",
    seed=605,
    newcomers=True,
)
def a_judgement_is_remembered_by_id_alone(patch: Patch) -> None:
    patch.setattr(memory, "is_held", lambda *given: True)
    patch.setattr(Claims, "holds", lambda self: True)


@bug(
    "An attempt counts as published if the next snapshot has its files, whoever put them there.",
    "twin",
    "expirer",
    rule=rules.WHOLE,
    why="The attempt that was really published counts as dead, and its manifests are deleted.",
    seed=326,
)
def the_files_of_a_reused_attempt_are_a_proof(patch: Patch) -> None:
    patch.setattr(
        dead_attempts,
        "_is_proof",
        lambda snapshots, manifests, published: snapshots.stands(published),
    )


@bug(
    "A run that has published nothing trusts its claim alone.",
    "hasty keeper",
    "twin",
    rule=rules.ONCE,
    why="An earlier run has published the batch, and the snapshot has expired.",
    seed=38,
)
def the_claim_alone_is_trusted(patch: Patch) -> None:
    real = judging.judge_next
    patch.setattr(
        judging,
        "judge_next",
        lambda *given, follows, **known: real(*given, follows=False, **known),
    )
    patch.setattr(RunFence, "__call__", lambda self: bool(self.claims.holds()))


@bug(
    "A first snapshot counts as published if none follows it; all that followed may have expired.",
    "hasty keeper",
    rule=rules.ACKNOWLEDGED,
    why="Its id was created again beside a table whose older snapshots have expired.",
    seed=116,
)
def the_first_snapshot_has_no_lineage(patch: Patch) -> None:
    def confirm(self: Publisher, staged: Any, *given: Any, **how: Any) -> Any:
        if staged.base.snapshot is None and not self._snapshots.exists(staged.snapshot.id + 1):
            return Landed(newest=True)
        return real(self, staged, *given, **how)

    real = Publisher.confirm
    patch.setattr(Publisher, "confirm", confirm)


@bug(
    "The next attempt uses merged manifests of a snapshot that was published and is void.",
    "hasty keeper",
    "Java writer without a lock",
    "manifest compactor",
    rule=rules.WHOLE,
    why="An expiry has taken the void snapshot for one that has expired, and its manifests with it.",
    seed=343,
)
def merged_manifests_outlive_a_void_snapshot(patch: Patch) -> None:
    def publish(self: Committer, attempts: Any, *given: Any) -> Any:
        merge = attempts.merge
        outcome = real(self, attempts, *given)
        if isinstance(outcome, Lost):
            attempts.merge = merge
        return outcome

    real = Committer._put_and_confirm
    patch.setattr(Committer, "_put_and_confirm", publish)


@bug(
    "A checkpoint behind its journal is not refused.",
    "keeper of checkpoints",
    "hasty keeper",
    rule=rules.ONCE,
    why="The checkpoint asks for a batch that the table has, and whose snapshot has expired.",
    seed=1,
)
def later_entries_are_overlooked(patch: Patch) -> None:
    real = gather.Evidence

    def without_later(**found: Any) -> Evidence:
        return real(**{**found, "later_entry": None})

    patch.setattr(gather, "Evidence", without_later)


@bug(
    "A wiped checkpoint is let in.",
    "keeper of checkpoints",
    rule=rules.ONCE,
    why="It begins with batch 0, which the table has.",
)
def a_wiped_checkpoint_is_let_in(patch: Patch) -> None:
    patch.setattr(StreamRefusals, "checkpoint_reset", lambda *given: None)


@bug(
    "A rewound checkpoint is let in.",
    "keeper of checkpoints",
    rule=rules.ONCE,
    why="It asks for batches that the table has, with other rows.",
)
def a_rewound_checkpoint_is_let_in(patch: Patch) -> None:
    patch.setattr(StreamRefusals, "checkpoint_rewound", lambda *given: None)


@bug(
    "The doctor calls every restart safe.",
    "keeper of checkpoints",
    "doctor",
    rule=rules.DOCTOR,
    why="He calls a restart safe that ends in an error.",
)
def the_doctor_is_always_content(patch: Patch) -> None:
    real = doctor._Doctor._of_sink
    patch.setattr(doctor._Doctor, "_of_sink", lambda *given: replace(real(*given), safe=True))


# -- publishing
# ----------------------------------------------------------------------------------------


@bug(
    "The hint is believed if the next snapshot is missing.",
    "Java writer",
    "expirer",
    "batch writer",
    "twin",
    rule=rules.STREAMS_END,
    why="A late hint names an old snapshot, and the id that follows it can never be had.",
    seed=88,
)
def a_hint_is_believed(patch: Patch) -> None:
    def latest(self: SnapshotStore) -> Any:
        hint = self._hint(LATEST_HINT)
        if (
            hint is not None
            and not self.exists(hint + 1)
            and (found := self.find(hint)) is not None
        ):
            return found
        return self._listed()

    patch.setattr(SnapshotStore, "latest", latest)


@bug(
    "The file of a snapshot is replaced instead of created.",
    rule=rules.NOT_REPLACED,
    why="The id may be another writer's.",
    seed=6,
)
def a_snapshot_is_replaced(patch: Patch) -> None:
    def put(self: SnapshotStore, snapshot: Any, content: bytes | None = None) -> PutResult:
        self.storage.write(snapshot_path(snapshot.id), content or b"")
        return PutResult.CREATED

    patch.setattr(SnapshotStore, "create_snapshot", put)


@bug(
    "What lies below the new snapshot is never a rollback.",
    rule=rules.ACKNOWLEDGED,
    why="The writer reports a snapshot that lies above the target of a rollback.",
    seed=103,
)
def what_lies_below_is_never_a_rollback(patch: Patch) -> None:
    patch.setattr(Publisher, "_look_below", lambda *given: Landed())


@bug(
    "A put without an answer counts as lost.",
    "batch writer",
    rule=rules.WHOLE,
    why="The snapshot may stand, and the manifests of a lost attempt are deleted.",
    seed=19,
)
def no_answer_means_lost(patch: Patch) -> None:
    def put(self: Publisher, staged: Any, retry_budget: Any, usable: Any) -> Any:
        try:
            created = (
                self._snapshots.create_snapshot(staged.snapshot, staged.content)
                is PutResult.CREATED
            )
        except Unavailable:
            return Lost(proven=True)
        return publish.Placed(doubted=False) if created else Lost(proven=True)

    patch.setattr(Publisher, "put", put)


@bug(
    "A put whose id is taken counts as lost, though it may be its own earlier put.",
    "batch writer",
    rule=rules.WHOLE,
    why="The snapshot stands, and the manifests of a lost attempt are deleted.",
    seed=8,
)
def the_own_snapshot_is_not_recognised(patch: Patch) -> None:
    def put(self: Publisher, staged: Any, retry_budget: Any, usable: Any) -> Any:
        for _ in range(3):
            try:
                created = (
                    self._snapshots.create_snapshot(staged.snapshot, staged.content)
                    is PutResult.CREATED
                )
            except Unavailable:
                continue
            return publish.Placed(doubted=False) if created else Lost(proven=True)
        return real(self, staged, retry_budget, usable)

    real = Publisher.put
    patch.setattr(Publisher, "put", put)


@bug(
    "Each K+1 that was not built on ours voids ours, wherever it lies.",
    "manifest compactor",
    "Java writer",
    "hasty keeper",
    rule=rules.WHOLE,
    why="A sleeper of Java's has published K and K+1 below what an expiry left, and the commit is part of the table.",
    seed=15386,
    within=1,
    script=[
        *([0], [0], [2], [0], [3], [3, 0, 13], [2, 0, 14], [3, 0, 0, 12], [2, 15, 0, 22]),
        *([4], [3], [3]),
    ],
)
def who_lies_beside_the_lineage_voids_ours(patch: Patch) -> None:
    patch.setattr(Publisher, "_is_part_of_table", lambda self, snapshot, latest: True)


@bug(
    "A lost attempt's metadata goes although its snapshot was tagged.",
    "tagger",
    "Java writer without a lock",
    "long outage",
    rule=rules.WHOLE,
    why="Java replaces the tagged snapshot and builds on its own, which proves the loss.",
    seed=4,
    within=1,
    newcomers=True,
)
def nothing_is_left_to_tags(patch: Patch) -> None:
    patch.setattr(Committer, "_leave_to_tags", lambda self, attempts: None)


@bug(
    "A lost attempt deletes the files that the next one commits.",
    "batch writer",
    "twin",
    rule=rules.WHOLE,
    why="The next attempt refers to the rows' files.",
)
def a_lost_attempt_takes_its_rows_along(patch: Patch) -> None:
    def drop(self: Any, attempts: Any, staged: Any, lost: Any) -> None:
        message_files.remove_files(
            self._storage,
            message_files.data_files(self._checker._table.layout, attempts.request.messages),
        )
        real(self, attempts, staged, lost)

    real = committer.Committer._drop_lost
    patch.setattr(committer.Committer, "_drop_lost", drop)
    patch.setattr(checks, "missing_files", lambda *given, **when: [])


@bug(
    "A staging is too old at once, so nothing is ever published.",
    "batch writer",
    rule=rules.STREAMS_END,
    why="Nothing is ever published.",
)
def a_staging_is_too_old_at_once(patch: Patch) -> None:
    patch.setattr(committer, "_SHORTEST_STAGED_MILLIS", -1)
    patch.setattr(committer, "_LONGEST_STAGED_MILLIS", -1)


@bug(
    "The files of a batch are deleted although it may be published.",
    "batch writer",
    "twin",
    rule=rules.WHOLE,
    why="The snapshot that refers to them may stand.",
    seed=9,
)
def files_are_deleted_in_doubt(patch: Patch) -> None:
    """A store that gives no answer to the commit rarely deletes a file right after that. So the
    files go where the first put has no answer.
    """
    writing: dict[object, WrittenBatch] = {}

    def prepare(written: WrittenBatch, *given: Any) -> Any:
        writing[_process(written.judged.table.storage)] = written
        return commit(written, *given)

    def publish(self: SnapshotStore, snapshot: Any, content: bytes) -> PutResult:
        try:
            return put(self, snapshot, content)
        except Unavailable:
            if (written := writing.get(_process(self.storage))) is not None:
                publishing.discard(written)
            raise

    commit, put = publishing._commit, SnapshotStore.create_snapshot
    patch.setattr(publishing, "_commit", prepare)
    patch.setattr(SnapshotStore, "create_snapshot", publish)


def _process(storage: Any) -> object:
    return storage._process


# -- the journal and what dead attempts left
# -----------------------------------------------------------


@bug(
    "The files of dead attempts are deleted without a look at the snapshot of the batch.",
    "twin",
    rule=rules.WHOLE,
    why="The published attempt may have taken the files of an earlier one.",
)
def dead_files_are_not_compared(patch: Patch) -> None:
    patch.setattr(dead_attempts, "_references", lambda *given: ())


@bug(
    "The files of a published batch are deleted as those of a dead attempt.",
    "reader",
    rule=rules.WHOLE,
    why="The table refers to the files.",
)
def every_attempt_is_dead(patch: Patch) -> None:
    def settle(published: PublishedBatch) -> SettledBatch:
        publishing.discard(published.written)
        return real(published)

    real = settling.settle
    patch.setattr(one_batch, "settle", settle)


@bug(
    "filter_and_commit filters nothing.",
    "committer",
    rule=rules.ONCE,
    why="The commit had landed, and is made again.",
    seed=10,
)
def nothing_is_filtered(patch: Patch) -> None:
    patch.setattr(table_commit.TableCommit, "_newest_of_user", lambda *given: None)
    patch.setattr(committer.Checker, "_is_compared", lambda *given: False)


@bug(
    "abort deletes what is committed.",
    "committer",
    rule=rules.WHOLE,
    why="The table refers to the files.",
)
def abort_does_not_ask(patch: Patch) -> None:
    patch.setattr(table_commit, "names_in_use", lambda *given: frozenset())


# -- recommit
# ------------------------------------------------------------------------------------------


@bug(
    "recommit overlooks rollbacks, and an error advises it.",
    "rollback",
    "Java writer",
    "forgetful operator",
    rule=rules.ROLLBACK_STANDS,
    why="It commits the files again that the rollback took.",
)
def recommit_overlooks_rollbacks(patch: Patch) -> None:
    patch.setattr(last_batch, "_proven_removal", lambda *_: None)
    patch.setattr(recommit, "read_removals", lambda storage: Removals())


@bug(
    "What a rollback took is taken for replaced by another engine.",
    "rollback",
    "Java writer",
    "forgetful operator",
    rule=rules.ADVICE,
    why="The error advises a recommit, which refuses.",
)
def a_rolled_back_batch_is_replaced(patch: Patch) -> None:
    patch.setattr(last_batch, "_proven_removal", lambda *_: None)


@bug(
    "recommit looks for the place of a lost batch by the names of manifests alone.",
    "Java writer without a lock",
    "stream b",
    rule=rules.ADVICE,
    why="A commit that merged manifests names none of those below it, so its place is not found, and recommit refuses what the error told the operator to do.",
    within=1,
    script=[
        *([1], [], [], [2], [0, 0, 0, 20], [2]),
        *([3, 0, 0, 12], [3, 0, 0, 12], [3, 0, 0, 12], [3, 0, 0, 12], [3, 0, 0, 12]),
        *([0], [3], [0, 0, 7]),
    ],
)
def recommit_knows_manifests_by_name(patch: Patch) -> None:
    def is_built_on(self: Any, staged: Mapping[str, object], snapshot: Snapshot) -> bool:
        delta = self._manifests.delta(snapshot)
        return bool(delta) and all(meta.file_name in staged for meta in delta)

    patch.setattr(recommit._Replacement, "_is_built_on", is_built_on)


# -- sequence numbers
# ----------------------------------------------------------------------------------


@bug(
    "Nobody looks whether another writer has used the same sequence numbers.",
    "twin",
    "batch writer",
    rule=rules.SUMS,
    why="An older row has the number of a newer one, or a higher one.",
    seed=15,
)
def numbers_are_not_compared(patch: Patch) -> None:
    patch.setattr(sequence.Sequences, "check", lambda *given: None)


@bug(
    "Every batch of a table with keys begins at sequence number 0.",
    "batch writer",
    rule=rules.SUMS,
    why="Rows of later batches have no higher numbers than those before.",
    seed=2,
)
def numbers_begin_at_zero(patch: Patch) -> None:
    def following(self: sequence.Sequences, *given: Any, **how: Any) -> sequence.Numbering:
        return replace(real(self, *given, **how), first=0)

    real = sequence.Sequences.next
    patch.setattr(sequence.Sequences, "next", following)
    patch.setattr(sequence.Sequences, "check", lambda *given: None)


__all__ = [
    "BUGS",
    "Bug",
    "planted_catalogs",
    "planted_changes",
    "planted_compaction",
    "planted_deletes",
    "planted_dynamic",
    "planted_figures",
    "planted_hdfs",
    "planted_histories",
    "planted_in_stream",
    "planted_maintenance",
    "planted_promises",
    "planted_real_files",
    "planted_row_ids",
    "planted_vectors",
]


@bug(
    "A snapshot without changes always counts as part of the table.",
    rule=rules.ONCE,
    why="A snapshot beside the line hides the files of the batch, which is written again.",
    seed=20261123032317,
    within=1,
    newcomers=True,
)
def what_changes_nothing_is_part_of_the_table(patch: Patch) -> None:
    """Mentions of the batch's files would hide it in this schedule, so nobody looks for them."""
    real = judging.live_files_of
    patch.setattr(
        judging, "live_files_of", lambda *given, removed=False: 0 if removed else real(*given)
    )
    patch.setattr(lineage, "_counts_on", lambda *given: True)


@bug(
    "A register that a dead run wrote late is believed.",
    "keeper of checkpoints",
    "hasty keeper",
    "twin",
    rule=rules.ONCE,
    why="It vouches for batches that a run without a journal has written, and they are written again.",
    seed=136,
)
def a_late_register_is_believed(patch: Patch) -> None:
    def since(self: Evidence) -> int | None:
        return None if self.registered is None else self.registered.journal_since

    patch.setattr(Evidence, "journal_since", property(since))


@bug(
    "Behind a batch that has expired, a later one counts as new.",
    rule=rules.ONCE,
    why="The table has the later batch, too.",
    seed=20261123028268,
    within=1,
    newcomers=True,
)
def what_follows_an_expired_batch_is_new(patch: Patch) -> None:
    real = settling.Memory
    patch.setattr(settling, "Memory", lambda **known: real(**{**known, "has_expired": False}))
