"""The first step of a batch: what is to be done with it, on the table as it is now (exactly-once.md
§1, §2). The first batch of a run is judged from the storage, after the run has claimed its user.
Later ones are judged by what the run remembers or, where that does not decide, from the storage.

    judge_batch ─┬─ first batch ──────────────────▶ judge_from_storage ──▶ ledger.py: judge_evidence
                 │                                     ▲                  reuse.py: obstacle_to_reuse
                 └─ later ──▶ memory.py: judge_next ───┘ if memory does not decide
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from paimon_stream.commit.guard import guard_stream
from paimon_stream.commit.report import Phase
from paimon_stream.commit.request import Sight
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.options import COMMIT_GUARD, ON_CHECKPOINT_RESET, ON_TABLE_CHANGE
from paimon_stream.runtime import Runtime
from paimon_stream.storage.store_client import probe_atomic_create
from paimon_stream.storage.together import Meter, Request
from paimon_stream.stream.admission import given_up, journal_since, passed_over
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.gather import gather
from paimon_stream.stream.ledger import judge_evidence
from paimon_stream.stream.memory import Memory, judge_next, require_absent
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.reuse import obstacle_to_reuse
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.standing import Outlook, Standing, Target
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse, Verdict
from paimon_stream.stream.writable import (
    check_writable,
    tell_of_followers,
    warn_of_earlier_batches,
    warn_of_merging,
    warn_of_work_left,
)
from paimon_stream.table.branch_identity import read_identity
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.layout import SNAPSHOT_FOLDER
from paimon_stream.table.table import Table, table_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """A verdict on a batch, how the run stands after the verdict, and what was seen of the table.
    `JudgedBatch` describes these values.
    """

    verdict: Verdict
    standing: Standing
    sight: Sight | None
    knows_none_later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A batch that is judged on a table.

    Attributes:
        run: the run.
        batch: the batch.
        target: the table.
        refuse: the refusals for the batch. They record what an operator has accepted.
    """

    run: StreamRun
    batch: Batch
    target: Target
    refuse: StreamRefusals

    @classmethod
    def of(cls, run: StreamRun, batch: Batch, target: Target) -> "_Case":
        refuse = run.refusals(batch, target.table)
        return cls(run=run, batch=batch, target=target, refuse=refuse)


def judge_batch(run: StreamRun, standing: Standing, batch: Batch) -> JudgedBatch:
    """Decides whether the batch was committed, and whether it is to be written.

    Args:
        run: the run.
        standing: how the run stands after its last batch.
        batch: the batch.

    Raises:
        ReplayError: exactly-once cannot be proven.
        UnsupportedFeature: the table cannot be written.
        StorageError: the storage failed.
        FormatError: a file cannot be understood.
    """
    clock = run.runtime.clock
    meter = Meter(run.storage)
    began = clock.monotonic()
    began_millis = clock.now_millis()
    run.observer.reached(Phase.BATCH_STARTED, batch.batch_id)
    if standing.memory is None or standing.target is None:
        judgement = _admit(_Case.of(run, batch, Target.open(run)), standing)
    else:
        judgement = _judge_later(run, standing, batch, standing.target, standing.memory)
    run.observer.reached(Phase.JUDGED, batch.batch_id)
    return JudgedBatch(
        run=run,
        batch=batch,
        verdict=judgement.verdict,
        standing=judgement.standing,
        sight=judgement.sight,
        knows_none_later=judgement.knows_none_later,
        began_millis=began_millis,
        meter=meter,
        phases={"judge": (clock.monotonic() - began) * 1000},
    )


# -- coming into a table --------------------------------------------------------------------------
def _admit(case: _Case, standing: Standing) -> _Judgement:
    """Judges the first batch of the run in a table, and registers the run. It is the run's first
    batch at all, or a batch for which an operator has let the run continue in a table that was
    replaced. The claims of earlier runs end before the judgement. So an earlier run that is alive
    stops at its next batch, even if this run is then refused.
    """
    run = case.run
    table = case.target.table

    def claim_and_gather() -> tuple[bool, Evidence]:
        ended = run.claims.acquire()
        evidence = gather(table, run.identity, case.batch, snapshots=run.snapshots, runs=ended)
        return bool(ended), evidence

    seen_millis = run.runtime.clock.now_millis()
    probes: list[Request] = []
    if table.options.value(COMMIT_GUARD) != "trust":
        probes.append(partial(probe_atomic_create, run.storage, SNAPSHOT_FOLDER, run.runtime.ids))
    *_, (ended, evidence) = run.storage.together([*probes, claim_and_gather])
    verdict = _judge_case(case, evidence)
    outlook = _outlook(evidence, verdict, ended=ended)
    _require_newest_run(case, verdict)
    _register(case, evidence, verdict, anew=_gives_up_earlier(case))
    if _has_entry_of_another_table(evidence):
        run.journal.remove_other_tables(evidence.schema_digest)
    warn_of_merging(table, in_stream=not run.overwrites)
    if run.merges:
        tell_of_followers(table)
    if not run.overwrites:
        warn_of_earlier_batches(table, evidence, verdict)
    warn_of_work_left(table)
    admitted = replace(case.target, digest=evidence.schema_digest, branch=evidence.branch)
    return _Judgement(
        verdict=verdict,
        standing=replace(standing, memory=None, target=admitted, outlook=outlook),
        sight=Sight(latest=evidence.latest, schema_id=table.schema.id, since_millis=seen_millis),
        knows_none_later=evidence.knows_none_later,
    )


def _has_entry_of_another_table(evidence: Evidence) -> bool:
    """Whether the journal has entries of a table that was at this location before."""
    entries = (evidence.entry, evidence.last_entry)
    return any(
        entry is not None and entry.schema_digest != evidence.schema_digest for entry in entries
    )


def _outlook(evidence: Evidence, verdict: Verdict, *, ended: bool) -> Outlook:
    """What earlier runs may still do. `ended` says whether this run has ended the claim of an
    earlier run.
    """
    follows = ended or evidence.has_earlier_run
    is_renamed = False
    if not follows:
        is_renamed = not all(evidence.claimed(sibling.user) for sibling in evidence.siblings)
    # If our newest snapshot is at or below this batch, or an operator has decided, later entries of
    # the journal are left over from before. A batch that only live files show proves nothing of
    # later batches.
    later_are_gone = not isinstance(verdict, AlreadyCommitted) or verdict.snapshot is not None
    goes_back = evidence.later_entry is not None and later_are_gone
    return Outlook(follows=follows, is_renamed=is_renamed, goes_back=goes_back)


def _require_newest_run(case: _Case, verdict: Verdict) -> None:
    """Raises `SharedCheckpoint` if a later run has begun. Such a run may have published a snapshot
    since the evidence was gathered, and the snapshot may have expired before the judgement. In the
    same trip, checks whether another engine may replace snapshots.
    """
    run = case.run
    requests: list[Request] = [run.claims.is_ended]
    if verdict.seen is not None:
        table = case.target.table
        requests.append(
            partial(guard_stream, table, run.snapshots, verdict.seen.id, run.runtime.clock)
        )
    is_ended, *_ = run.storage.together(requests)
    if is_ended:
        raise case.refuse.later_run_began()


# -- later batches of a run -----------------------------------------------------------------------
def _judge_later(
    run: StreamRun, standing: Standing, batch: Batch, target: Target, memory: Memory
) -> _Judgement:
    """Judges a later batch of a run, in one trip unless somebody else has written meanwhile."""
    seen_millis = run.runtime.clock.now_millis()
    requests: list[Request] = [
        partial(run.schemas.newest, target.table.schema),
        run.schemas.first_digest,
        run.snapshots.latest,
        run.claims.holds,
        partial(read_identity, run.storage),
    ]
    schema, digest, latest, claimed, branch = run.storage.together(requests)
    if schema != target.table.schema:
        table = table_of(run.storage, schema, run.options)
        check_writable(table, in_stream=not run.overwrites)
        target = target.with_table(run, table, digest)
    case = _Case.of(run, batch, target)
    refuse = case.refuse
    if digest != target.digest or branch != target.branch:
        if digest != target.digest:
            refuse.table_replaced("the table's first schema changed while the stream was running")
        else:
            refuse.table_replaced("the branch's identity changed while the stream was running")
        # An operator lets the query continue, as a new stream of the new table.
        return _admit(replace(case, target=Target.open(run)), standing)
    # Batches of an old name may be lost. This run would not notice that while it has no batch of
    # its own.
    outlook = standing.outlook
    follows = outlook.follows or (outlook.is_renamed and memory.own is None)
    fresh = judge_next(run.snapshots, memory, refuse, latest=latest, follows=follows)
    verdict = fresh or _judge_again(case)
    alone = latest is not None and SnapshotRef.of(latest) == memory.seen
    # A later run may have published snapshots since the claim was looked for, and these may have
    # expired before the snapshots were read. If no snapshot is new, no later run has published
    # anything.
    if not (claimed and alone) and run.claims.is_ended():
        raise refuse.later_run_began()
    sight = None
    if alone and standing.undisturbed:
        sight = Sight(latest=latest, schema_id=schema.id, since_millis=seen_millis)
    return _Judgement(
        verdict=verdict,
        standing=replace(standing, target=target, undisturbed=alone),
        sight=sight,
    )


def _judge_again(case: _Case) -> Fresh | Reuse:
    """Judges from the storage a later batch that the run's memory does not decide. Raises
    `SharedCheckpoint` if another run has published the batch.
    """
    run = case.run
    require_absent(run.snapshots, run.identity, case.refuse)
    evidence = gather(
        case.target.table,
        run.identity,
        case.batch,
        snapshots=run.snapshots,
        runs=frozenset[str](),
    )
    verdict = _judge_case(case, evidence)
    if _gives_up_earlier(case):
        _register(case, evidence, verdict, anew=True)
    if isinstance(verdict, AlreadyCommitted):
        raise case.refuse.published_by_earlier_run()
    return verdict


# -- from the storage -----------------------------------------------------------------------------
def judge_from_storage(
    table: Table,
    evidence: Evidence,
    refuse: StreamRefusals,
    runtime: Runtime,
    *,
    overwrites: bool,
    merges: bool,
) -> Verdict:
    """The verdict on a batch. It also says whether files that an earlier run prepared can be
    committed unchanged. Writes nothing: the sink acts on the verdict, and the doctor reports it.

    Args:
        table: the table.
        evidence: what the storage holds.
        refuse: the refusals for this batch.
        runtime: its clock tells how old prepared files are.
        overwrites: whether each batch replaces what is in the table.
        merges: whether each batch is merged into the rows of the table.

    Raises:
        ReplayError: exactly-once cannot be proven.
        StorageError: the storage failed.
        FormatError: a file cannot be understood.
    """
    verdict = judge_evidence(evidence, refuse)
    if not isinstance(verdict, Reuse):
        return verdict
    entry = verdict.entry
    obstacle = obstacle_to_reuse(
        table, evidence, entry, runtime.clock, overwrites=overwrites, merges=merges
    )
    if obstacle is None:
        return verdict
    if live_files_of(table, evidence.latest, entry, removed=True):
        # A writer that does not publish atomically has replaced the batch's snapshot. Newer
        # snapshots had been built on the batch's snapshot, so the rows are still in the table.
        return AlreadyCommitted(seen=verdict.seen, snapshot=None, dead=entry)
    return Fresh(seen=verdict.seen, own=verdict.own, dead=entry, why_not_reused=obstacle)


def _judge_case(case: _Case, evidence: Evidence) -> Verdict:
    """The verdict on the batch of a run. Logs why prepared files are not used."""
    run = case.run
    verdict = judge_from_storage(
        case.target.table,
        evidence,
        case.refuse,
        run.runtime,
        overwrites=run.overwrites,
        merges=run.merges,
    )
    if isinstance(verdict, Fresh) and verdict.why_not_reused:
        _LOG.info("Batch %d is written again: %s.", case.batch.batch_id, verdict.why_not_reused)
    return verdict


def _gives_up_earlier(case: _Case) -> bool:
    """Whether an operator has let the stream continue although the table lost batches, or although
    the stream writes batches again. If so, the journal's entries belong to such batches. False if a
    later run has ended this run's claim.
    """
    accepted = case.refuse.accepted & {ON_TABLE_CHANGE.key, ON_CHECKPOINT_RESET.key}
    has_decided = bool(accepted or case.refuse.given_up)
    return has_decided and case.run.claims.holds()


def _register(case: _Case, evidence: Evidence, verdict: Verdict, *, anew: bool) -> None:
    """Records that the stream was admitted. `anew` says whether an operator has decided. If so, the
    journal's entries are removed, but only after the register has recorded which batches are given
    up.
    """
    run = case.run
    refuse = case.refuse
    is_reset = ON_CHECKPOINT_RESET.key in refuse.accepted
    is_loss = ON_TABLE_CHANGE.key in refuse.accepted
    may_lack_batches = is_loss or bool(refuse.given_up)
    doubted: Collection[int] = ()
    if anew:
        doubted = refuse.given_up
    run.claims.register(
        evidence.schema_digest,
        journal_since(case.target.table, evidence, verdict, anew=anew),
        evidence.registered,
        given_up=given_up(
            evidence,
            verdict,
            lost=anew and may_lack_batches,
            proven=is_loss and not refuse.given_up,
        ),
        passed_over=passed_over(evidence, verdict, reset=anew and is_reset, doubted=doubted),
    )
    if anew:
        run.journal.clear()
