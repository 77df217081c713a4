"""A pure model of a table and its query: snapshots, journal, register, notes of removals and the
checkpoint, without any file. The query has one name. The events are those of `events.py` with the same
words, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from paimon_stream.stream.facts import (
    EarlierElsewhere,
    EarlierNoted,
    GapLeft,
    LastHeld,
    NotesAsked,
    OthersPublished,
    OwnStands,
    PreviousHeld,
    RememberedHeld,
)
from paimon_stream.stream.judgement import (
    NEXT_ROWS,
    ROWS,
    Ask,
    NextStep,
    Outcome,
    Row,
    Step,
    decide,
)
from paimon_stream.table.removals import FAST_FORWARD, ROLLBACK
from tests.histories import model_facts
from tests.histories.model_state import (
    Entry,
    Note,
    Removed,
    Run,
    Snap,
    State,
    cut_below,
    fate_of,
    note_of_nonce,
    note_of_uuid,
)
from tests.histories.world import (
    DOUBLED,
    LOST,
    NO_END,
    NOT_THERE,
    Broken,
    DoesNothing,
    Setting,
)

TABLE: Final = "on-table-change"
UNKNOWN: Final = "on-unknown-history"
RESET: Final = "on-checkpoint-reset"
_OPTIONS: Final = {
    Outcome.CHECKPOINT_RESET: RESET,
    Outcome.CHECKPOINT_REWOUND: RESET,
    Outcome.TABLE_REPLACED: TABLE,
    Outcome.TABLE_ROLLED_BACK: TABLE,
    Outcome.COMMIT_LOST: TABLE,
    Outcome.HISTORY_UNKNOWN: UNKNOWN,
}
_DOUBTS: Final = (LastHeld, PreviousHeld, EarlierNoted, NotesAsked, GapLeft, EarlierElsewhere)
"""The facts of which an operator who lets a batch continue has given something up."""
_START_AGAIN: Final = "start the query again"
"""In the place of an option where no operator decides."""
_MOST_DECISIONS: Final = 3


def begun(setting: Setting) -> State:
    """The table with which histories begin."""
    state = State(setting=setting)
    state = others(state)
    first = Entry(batch=0, uuids=(2,), file=2, base=state.main[-1].ref)
    tag = _published(state, first)
    state = replace(state, main=(*state.main, tag))
    second = Entry(batch=1, uuids=(3,), file=3, base=tag.ref, previous=(0, tag.ref))
    return replace(
        state,
        main=(*state.main, _published(state, second)),
        tag=tag,
        branch=(tag, replace(tag, id=tag.id + 1, nonce=4, batch=None)),
        journal=(first, second) if setting.journal else (),
        since=0 if setting.journal else None,
        attempts=4,
        next_batch=2,
        rows=((0, True), (1, True)),
        done=frozenset({0, 1}),
    )


# -- the query ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """What a run is told of its batch. `refused` is the option by which an operator would let it go
    on, None if it goes on. `accepted` are those that he had to give, and `doubts` says that one was
    about what he gave up. `by_storage`: the memory of the run did not decide.
    """

    outcome: Outcome
    refused: str | None = None
    why: str = ""
    accepted: frozenset[str] = frozenset()
    doubts: bool = False
    by_storage: bool = False


def judge(state: State, decisions: frozenset[str] = frozenset()) -> Judged:
    """What a new run is told: walks the rows of the package's table with the facts of the model."""
    return _walked(model_facts.Facts(state).ask, ROWS, decisions)


def judge_alive(state: State, run: Run) -> Judged:
    """What the run that is alive is told. Where its memory does not decide, storage does; a batch
    that storage has was published by another run.
    """
    judged = _walked(model_facts.NextFacts(state, run).ask, NEXT_ROWS, frozenset())
    if judged.outcome is not Outcome.STORAGE:
        return judged
    own = model_facts.Facts(state).own
    if own is not None and own.batch is not None and own.batch >= state.next_batch:
        return Judged(Outcome.SHARED_CHECKPOINT, refused=_START_AGAIN)
    judged = judge(state)
    if judged.outcome is Outcome.COMMITTED:
        return Judged(Outcome.SHARED_CHECKPOINT, refused=_START_AGAIN)
    return replace(judged, by_storage=True)


def _walked(ask: Ask, rows: tuple[Row, ...], decisions: frozenset[str]) -> Judged:
    accepted, doubts, step = set[str](), False, None
    while True:
        row = decide(ask, rows, step)
        following: object = row.outcome
        if not row.outcome.is_verdict:
            following = row.then
            option = _OPTIONS.get(row.outcome)
            if row.outcome is not Outcome.WARNING and option not in decisions:
                return Judged(row.outcome, refused=option or _START_AGAIN, why=row.why)
            if option is not None:
                accepted.add(option)
                doubts = doubts or (option == UNKNOWN and row.because in _DOUBTS)
        if isinstance(following, Outcome):
            return Judged(following, accepted=frozenset(accepted), doubts=doubts)
        assert isinstance(following, (Step, NextStep))
        step = following


def run_batch(
    state: State,
    rows: bool,
    *,
    dies: str = "",
    decisions: frozenset[str] = frozenset(),
) -> tuple[State, Judged]:
    """Runs the next batch in the run that is alive, or in a new one. A new one runs it if it dies
    before the batch is `published` or `noted`, or with `decisions`. Raises `DoesNothing`, and
    `Broken`.
    """
    batch = state.next_batch
    if dict(state.rows).get(batch, rows) != rows:
        raise DoesNothing
    run = None if dies or decisions else state.run
    state = replace(state, rows=tuple(sorted({**dict(state.rows), batch: rows}.items())), run=run)
    judged = judge(state, decisions) if run is None else judge_alive(state, run)
    if judged.refused is not None:
        return replace(state, run=None), judged
    check(state, judged)
    is_committed = judged.outcome is Outcome.COMMITTED
    if is_committed and dies:
        raise DoesNothing
    facts, before = model_facts.Facts(state), state
    if run is None:
        run = _begun_run(state, facts, is_committed)
        state = _registered(state, facts, judged)
    else:
        run = _went_on(state, run, facts, judged)
    state = replace(state, run=run)
    if not is_committed:
        reused = facts.entry if judged.outcome is Outcome.REUSE else None
        state = _committed(state, run, rows, reused, dies)
    if dies:
        state = replace(state, run=None)
    else:
        state = replace(
            state,
            next_batch=batch + 1,
            done_millis=state.now,
            done=state.done | {batch},
            given_up=state.given_up - {batch},
        )
        if rows and not state.copies(batch):
            raise Broken(LOST, f"batch {batch} is done, and not in the table")
    if state.copies(batch) > 1 + dict(before.again).get(batch, 0):
        raise Broken(DOUBLED, f"batch {batch} is in the table twice")
    return state, judged


def _begun_run(state: State, facts: model_facts.Facts, is_committed: bool) -> Run:
    """What a run remembers that has judged its first batch."""
    batch, since, latest = state.next_batch, state.since, state.main[-1]
    own = facts.published
    stands = facts.ask(OwnStands) is OwnStands.THIS_BATCH
    if is_committed:
        own = (batch, facts.own.ref) if facts.own is not None and stands else None
    knows_none_later = since is not None and since <= batch + 1 and facts.later is None
    return Run(
        batch=batch,
        own=own,
        seen=latest.ref,
        stood=state.now,
        has_expired=is_committed and own is None and not knows_none_later,
        goes_back=facts.later is not None and (not is_committed or stands),
    )


def _went_on(state: State, run: Run, facts: model_facts.Facts, judged: Judged) -> Run:
    """What a run remembers that has judged a later batch, before it is committed."""
    batch, latest = state.next_batch, state.main[-1]
    if judged.by_storage:
        stood = run.stood if run.own == facts.published else state.now
        return replace(
            run, batch=batch, own=facts.published, seen=latest.ref, stood=stood, has_expired=False
        )
    next_facts = model_facts.NextFacts(state, run)
    stands = next_facts.ask(RememberedHeld) is RememberedHeld.STANDS
    is_whole = next_facts.ask(OthersPublished) is not OthersPublished.MISSING
    return replace(
        run,
        batch=batch,
        seen=latest.ref if is_whole else run.seen,
        stood=state.now if stands else run.stood,
    )


def check(state: State, judged: Judged) -> None:
    """Raises `Broken` if the verdict on the next batch is not true."""
    batch, missing = state.next_batch, state.missing()
    if judged.outcome is Outcome.COMMITTED:
        if not state.copies(batch):
            raise Broken(NOT_THERE, f"batch {batch} counts as committed")
        return
    if state.copies(batch) > dict(state.again).get(batch, 0):
        raise Broken(DOUBLED, f"batch {batch} is written again")
    if missing:
        raise Broken(LOST, f"batch {batch} is written without {sorted(missing)}")


def _registered(state: State, facts: model_facts.Facts, judged: Judged) -> State:
    """The register after the judgement, and the journal, which goes with an operator's decision."""
    batch = state.next_batch
    is_committed = judged.outcome is Outcome.COMMITTED
    is_reset = RESET in judged.accepted
    anew = bool(judged.accepted & {TABLE, RESET}) or judged.doubts
    since = state.since
    if not state.setting.journal:
        since = None
    elif since is None or anew:
        has_expired = is_committed and facts.ask(OwnStands) is not OwnStands.THIS_BATCH
        since = None if has_expired else batch + is_committed
    else:
        since = max(since, _newest_without_entry(state, facts, is_committed=is_committed) + 1)
    given_up = tuple([(a, min(b, batch - 1)) for a, b in state.let_go if a < batch])
    if anew and (TABLE in judged.accepted or judged.doubts) and not is_committed:
        kept = -1 if facts.published is None else facts.published[0]
        taken = facts.first_taken(range(kept + 1, batch))
        if not judged.doubts and taken is not None:
            kept = taken - 1
        given_up = tuple([(a, min(b, kept)) for a, b in given_up if a <= kept])
        given_up += ((kept + 1, batch - 1),) if kept + 1 < batch else ()
    passed_over = state.passed_over
    if judged.doubts and facts.doubts_written_again:
        passed_over = None
    if anew and is_reset:
        own = facts.own
        is_ahead = own is not None and own.batch is not None and own.batch >= batch
        passed_over = (batch, own.ref) if own is not None and is_ahead else None
    return replace(
        state,
        since=since,
        let_go=given_up,
        passed_over=passed_over,
        journal=() if anew else state.journal,
    )


def _newest_without_entry(state: State, facts: model_facts.Facts, *, is_committed: bool) -> int:
    """Our newest batch up to this one, if it stands and the journal has no entry of it, else -1."""
    if is_committed:
        stands = facts.ask(OwnStands) is OwnStands.THIS_BATCH
        return state.next_batch if stands and state.entry(state.next_batch) is None else -1
    newest = max((one.batch for one in state.journal if one.batch < state.next_batch), default=-1)
    own = -1 if facts.published is None else facts.published[0]
    return own if newest < own else -1


def _committed(state: State, run: Run, rows: bool, reused: Entry | None, dies: str) -> State:
    batch = state.next_batch
    if rows:
        attempt, latest = state.attempts + 1, state.main[-1]
        entry = Entry(
            batch=batch,
            uuids=(attempt, *(reused.uuids if reused else ())),
            file=reused.file if reused else attempt,
            base=run.seen,
            previous=run.own,
            millis=state.now,
            newest=None if run.seen == latest.ref else latest.ref,
        )
        state = replace(state, attempts=attempt)
        if state.setting.journal:
            state = state.with_entry(entry)
        if dies == "published":
            return state
        snapshot = _published(state, entry)
        state = replace(state, main=(*state.main, snapshot))
        if state.setting.journal:
            state = state.trimmed(batch)
        if dies:
            return state
        run = replace(
            run, own=(batch, snapshot.ref), seen=snapshot.ref, stood=state.now, follows=False
        )
    if run.goes_back:
        state = replace(state, journal=tuple(one for one in state.journal if one.batch <= batch))
    return replace(state, run=replace(run, goes_back=False))


def _published(state: State, entry: Entry) -> Snap:
    latest = state.main[-1]
    return Snap(
        id=latest.id + 1,
        nonce=entry.uuids[0],
        batch=entry.batch,
        files=latest.files | {(entry.batch, entry.file)},
        millis=state.now,
    )


# -- events ---------------------------------------------------------------------------------------


def others(state: State) -> State:
    """Another engine commits."""
    latest = state.main[-1] if state.main else None
    nonce = state.attempts + 1
    new = Snap(
        id=1 if latest is None else latest.id + 1,
        nonce=nonce,
        batch=None,
        files=frozenset() if latest is None else latest.files,
        millis=state.now,
    )
    return replace(state, attempts=nonce, main=(*state.main, new))


def expiry(state: State) -> State:
    """All snapshots but the newest expire."""
    if len(state.main) < 2:
        raise DoesNothing
    return replace(state, main=state.main[-1:], now=state.now + 1000)


def outage(state: State) -> State:
    """Other engines go on, and all that was there expires."""
    return expiry(others(state))


def put_back(state: State) -> State:
    """The checkpoint is put back by a batch."""
    if state.next_batch == 0:
        raise DoesNothing
    return replace(state, next_batch=state.next_batch - 1, run=None)


def rollback_by_one(state: State) -> State:
    """The newest snapshot is rolled back."""
    if len(state.main) < 2:
        raise DoesNothing
    return _removed(state, state.main[-2], ROLLBACK, (), took_expired=False, alone=False)


def rollback_to_tag(state: State) -> State:
    """The table is rolled back to the tag, also where its snapshot has expired."""
    tag = state.tag
    if tag is None or tag.nonce == state.main[-1].nonce:
        raise DoesNothing
    has_expired = not state.stands(tag.ref)
    expired = list[Removed]()
    for entry in state.journal if has_expired else ():
        if entry.previous is not None and entry.previous[1][0] > tag.id:
            expired.append(Removed(snapshot=entry.previous[1], batch=entry.previous[0]))
        file = (entry.batch, entry.file)
        if file in state.main[-1].files and file not in tag.files:
            expired.append(Removed(snapshot=None, uuids=entry.uuids, batch=entry.batch))
    return _removed(state, tag, ROLLBACK, expired, took_expired=has_expired, alone=False)


def forward(state: State) -> State:
    """Main is made what the branch is."""
    if state.main[-1].nonce == state.branch[-1].nonce:
        raise DoesNothing
    shared = [one for one in state.branch if state.stands(one.ref)]
    target, alone = (shared[-1], False) if shared else (state.branch[0], True)
    lost, took_expired = list[Removed](), False
    if alone:
        lost, took_expired = _lost_to_branch(state, target)
    state = _removed(state, target, FAST_FORWARD, lost, took_expired=took_expired, alone=alone)
    main = (*state.main, *(one for one in state.branch if one.id > target.id))
    point = state.branch[0]
    return _restored(
        replace(state, main=main, tag=point), {one.nonce for one in state.branch} | {point.nonce}
    )


def _lost_to_branch(state: State, target: Snap) -> tuple[list[Removed], bool]:
    """What main loses where it shares no snapshot with the branch, and whether that has expired."""
    point, latest = state.branch[0], state.main[-1]
    held = fate_of(state, point.ref, latest).is_held
    cut = cut_below(state, point.ref) if held is False else None
    shared, proven = (point.id, point.id) if held else (0, point.id)
    if cut is not None:
        shared = proven = cut[0]
    standing = [one for one in state.main if one.ref != target.ref]
    lost = [Removed.of(one, certain=one.id > proven) for one in standing if one.id > shared]
    there = {one.batch for one in standing}
    for entry in state.journal:
        if entry.previous is not None and entry.previous[1][0] > shared:
            batch, before = entry.previous
            noted = note_of_nonce(state, before[1])
            if batch not in there and not (noted is not None and noted[1].certain):
                lost.append(Removed(snapshot=before, batch=batch, certain=before[0] > proven))
        noted = note_of_uuid(state, entry.uuids[0])
        if entry.batch in there or (noted is not None and noted[1].certain):
            continue
        above = 0 if entry.base is None else entry.base[0]
        lost.append(
            Removed(snapshot=None, uuids=entry.uuids, batch=entry.batch, certain=above >= proven)
        )
    ids = [one.id for one in standing]
    return lost, bool(ids) and ids[0] > shared + 1


def _removed(
    state: State,
    target: Snap,
    by: str,
    expired: Iterable[Removed],
    *,
    took_expired: bool,
    alone: bool,
) -> State:
    """Takes all above the target, and notes it."""
    later = [one for one in state.main if one.id > target.id]
    going: dict[tuple[int, ...], Removed] = {}
    for one in (*expired, *map(Removed.of, later)):
        first = going.setdefault(one.snapshot or one.uuids, one)
        going[one.snapshot or one.uuids] = replace(first, stood=first.stood or one.stood)
    note = Note(
        by=by,
        target=target.ref,
        millis=state.now,
        took_expired=took_expired,
        removed=tuple(going.values()),
    )
    below = () if alone else tuple(one for one in state.main if one.id < target.id)
    tag = state.tag if state.tag is not None and state.tag.id <= target.id else None
    notes = (*state.notes, note) if going else state.notes
    return replace(state, main=(*below, target), notes=notes, tag=tag)


def _restored(state: State, nonces: set[int]) -> State:
    """Moves what is back from the notes of what was removed."""
    notes, known = list(state.notes), -1
    while known < len(nonces):
        known = len(nonces)
        for place, note in enumerate(notes):
            notes[place], more = note.without(nonces)
            nonces = nonces | more
    return replace(state, notes=tuple(notes))


def proceed(state: State) -> State:
    """An operator lets the query go on with its next batch, which is refused."""
    batch = state.next_batch
    rows = dict(state.rows).get(batch, True)
    state, judged = run_batch(state, rows)
    if judged.refused is None:
        raise DoesNothing
    decisions = frozenset[str]()
    while judged.refused is not None:
        if len(decisions) == _MOST_DECISIONS:
            raise Broken(NO_END, str(judged.outcome))
        state = _accepted(state, judged)
        decisions |= {judged.refused}
        state, judged = run_batch(state, rows, decisions=decisions)
    return replace(state, run=None)


def _accepted(state: State, judged: Judged) -> State:
    batch = state.next_batch
    if judged.refused == _START_AGAIN:
        raise DoesNothing
    if judged.refused == RESET:
        again = dict(state.again)
        for one in {number for number, _ in state.main[-1].files if number >= batch}:
            again[one] = again.get(one, 0) + state.copies(one)
        return replace(state, again=tuple(sorted(again.items())))
    copies = state.copies(batch)
    if judged.outcome is Outcome.HISTORY_UNKNOWN and copies > dict(state.again).get(batch, 0):
        raise DoesNothing
    return replace(state, given_up=state.given_up | state.missing())


def _batch(state: State) -> State:
    return run_batch(state, True)[0]


def _restart(state: State) -> State:
    if state.run is None:
        raise DoesNothing
    return run_batch(replace(state, run=None), True)[0]


MODEL_EVENTS: Final[dict[str, Callable[[State], State]]] = {
    "batch": _batch,
    "restart, batch": _restart,
    "empty batch": lambda state: run_batch(state, False)[0],
    "batch, not noted": lambda state: run_batch(state, True, dies="noted")[0],
    "batch, not published": lambda state: run_batch(state, True, dies="published")[0],
    "checkpoint put back": put_back,
    "continue": proceed,
    "commit of others": others,
    "expiry": expiry,
    "outage": outage,
    "rollback by one": rollback_by_one,
    "rollback to the tag": rollback_to_tag,
    "forward to the branch": forward,
}


def after(state: State, event: str) -> State:
    """The state after an event. Raises `DoesNothing`, and `Broken`."""
    advanced = replace(state, now=state.now + state.setting.pace)
    return MODEL_EVENTS[event](advanced)
