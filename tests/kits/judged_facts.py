"""What is said of the facts of a judgement independently of its rows: which combinations cannot be, and
what holds for all others, whatever the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from paimon_stream.stream.facts import (
    Asked,
    Attempts,
    Base,
    Beside,
    Branch,
    Created,
    Elsewhere,
    Entry,
    Finished,
    Followed,
    Gap,
    History,
    Incarnation,
    Journal,
    Last,
    Later,
    Live,
    Noted,
    Number,
    OldName,
    Order,
    Own,
    Previous,
    Query,
    Remembered,
    Seen,
    Since,
    Sink,
    Table,
    Window,
)
from paimon_stream.stream.judgement import Outcome, Step
from tests.kits.boxes import Box, End, box_of


@dataclass(frozen=True, slots=True)
class Impossible:
    """Combinations that cannot be, and why."""

    why: str
    box: Box


@dataclass(frozen=True, slots=True)
class Law:
    """What holds for all ends of these combinations."""

    name: str
    box: Box
    holds: Callable[[End], bool]


def _but(*values: Enum) -> tuple[Enum, ...]:
    """All values of a fact but these."""
    return tuple(one for one in type(values[0]) if one not in values)


def _cannot(why: str, *values: Enum) -> Impossible:
    return Impossible(why, box_of(*values))


REGISTERED = (Query.OURS, Query.ANOTHERS)
FOUND = _but(Own.NONE)
NOT_FOUND = (Own.NONE, Own.PASSED_OVER)
AT_OR_ABOVE = _but(Own.NONE, Own.BELOW)
LOST = (Last.ROLLED_BACK, Last.REPLACED, Last.BESIDE_THE_LINE, Last.CANNOT_BE_KNOWN)
LOST_UNDER_OLD_NAME = _but(
    OldName.NONE, OldName.PUBLISHED, OldName.MAY_HAVE_PUBLISHED, OldName.UNPROVEN
)

IMPOSSIBLE = (
    _cannot("Only a register demands it.", Query.UNREGISTERED, *_but(Asked.NOT_ASKED)),
    _cannot(
        "The register keeps what was decided.",
        Query.UNREGISTERED,
        Query.ANOTHERS,
        Own.PASSED_OVER,
    ),
    _cannot("A register of another table is not believed.", Table.ANOTHER, Own.PASSED_OVER),
    _cannot("Asked only without a register.", *REGISTERED, Incarnation.ANOTHERS),
    _cannot("Asked only without a snapshot of ours.", *FOUND, Incarnation.ANOTHERS),
    _cannot(
        "A snapshot without a register shows what this name is.",
        Query.UNREGISTERED,
        *FOUND,
        *_but(OldName.NONE),
    ),
    _cannot(
        "This name has this batch or a later one itself.",
        *AT_OR_ABOVE,
        *_but(OldName.NONE),
    ),
    _cannot(
        "What was published since our snapshot stands above it.",
        Own.BELOW,
        OldName.MAY_HAVE_PUBLISHED,
    ),
    _cannot(
        "None is above a snapshot of this batch.",
        *_but(*NOT_FOUND, Own.BELOW),
        *_but(Last.NONE),
    ),
    _cannot(
        "What was above a snapshot of ours that stands has not expired.",
        Own.BELOW,
        Last.HELD,
        Last.UNPROVEN,
    ),
    _cannot(
        "Only the entry of this batch shows it, as `Previous`.", *NOT_FOUND, Last.BESIDE_THE_LINE
    ),
    _cannot("A gap lies above our snapshot.", *_but(Own.BELOW), Gap.BATCHES),
    _cannot("The walk ends at our newest snapshot.", *FOUND, Beside.THIS_OR_LATER),
    _cannot(
        "The walk ends at our newest snapshot, so nothing is missing.", *FOUND, History.EXPIRED
    ),
    _cannot("Only an attempt names it.", Entry.NONE, *_but(Previous.NONE)),
    _cannot("Only an attempt has a base.", Entry.NONE, *_but(Base.NONE)),
    _cannot("Only an attempt has one.", Entry.NONE, *_but(Window.NONE)),
    _cannot("An attempt has one.", Entry.PREPARED, Window.NONE),
    _cannot("Only an attempt has files.", Entry.NONE, Live.LIVE),
    _cannot("There is no cut.", *_but(Base.CUT), Window.ALL_SINCE_CUT),
    _cannot("Main is asked only without a register.", *REGISTERED, *_but(Branch.NOT)),
    _cannot("A new sink has no register.", *REGISTERED, Sink.NEW),
    _cannot("A new sink has no journal.", Sink.NEW, Entry.PREPARED),
    _cannot("A new sink has no journal.", Sink.NEW, Later.PREPARED),
    _cannot("A new sink has no journal.", Sink.NEW, Own.NONE, *_but(Last.NONE)),
    _cannot("The register says from where on.", Query.UNREGISTERED, Journal.VOUCHES),
    _cannot("Asked only of a registered stream.", Query.UNREGISTERED, Elsewhere.WRITTEN),
    _cannot("Batch 0 is the first.", Number.FIRST, Own.BELOW),
    _cannot("Batch 0 is the first.", Number.FIRST, *_but(Last.NONE)),
    _cannot("Batch 0 is the first.", Number.FIRST, *_but(Noted.NOTHING)),
    _cannot("Batch 0 is the first.", Number.FIRST, Asked.TAKEN, Asked.MAY_BE_TAKEN),
    _cannot("Batch 0 is the first.", Number.FIRST, Elsewhere.WRITTEN),
    _cannot("Batch 0 is the first.", Number.FIRST, OldName.UNPROVEN, *LOST_UNDER_OLD_NAME),
)
"""The combinations that cannot be, for a first batch. `known_facts.py` makes them so."""

IMPOSSIBLE_NEXT = (
    _cannot(
        "A run with a snapshot of its own sees what goes.",
        *_but(Remembered.NONE),
        Followed.MAY_HAVE_MISSED,
    ),
)
"""The same for a later batch."""


def _is_asked(end: End) -> bool:
    return not end.goes_on


def _is(outcome: Outcome) -> Callable[[End], bool]:
    return lambda end: end.outcome is outcome and not end.is_let_in


def _goes_on(end: End) -> bool:
    return end.goes_on


def _says(end: End) -> bool:
    return not end.goes_on or any(row.outcome is Outcome.REMARK for row in end.met)


def _never(outcome: Outcome) -> Callable[[End], bool]:
    return lambda end: end.outcome is not outcome


GOOD: Mapping[type[Enum], frozenset[Enum]] = box_of(
    Table.SAME,
    Query.UNREGISTERED,
    Query.OURS,
    Incarnation.NONE,
    OldName.NONE,
    OldName.UNPROVEN,
    Asked.NOT_ASKED,
    Asked.NOTHING,
    Created.EARLIER,
    Last.NONE,
    Last.HELD,
    Last.UNPROVEN,
    Noted.NOTHING,
    Elsewhere.NO,
    Later.NONE,
    Beside.NONE,
    Previous.NONE,
    Previous.HELD,
    Base.NONE,
    Base.NOT_ABOVE,
    Base.CUT,
    Branch.NOT,
)
"""Nothing is recorded that was lost, moved, or taken by another: what each plain outage has."""


def _good(*values: Enum) -> Box:
    return {**GOOD, **box_of(*values)}


NEW_HERE = (*NOT_FOUND, Entry.NONE, Sink.NOT_NEW, Number.LATER)

LAWS = (
    # -- nothing twice
    Law(
        "what our snapshot has is not written again",
        box_of(*_but(Own.NONE, Own.BELOW, Own.PASSED_OVER)),
        _is_asked,
    ),
    Law(
        "a second sink of this run is never taken for a replay",
        box_of(Own.THIS_RUN),
        lambda end: end.outcome not in (Outcome.COMMITTED, Outcome.FRESH, Outcome.REUSE),
    ),
    Law(
        "a live file is never written again",
        box_of(*NOT_FOUND, Entry.PREPARED, Window.MISSING, Live.LIVE),
        _is_asked,
    ),
    Law(
        "an attempt that may have been published asks",
        box_of(*NOT_FOUND, Entry.PREPARED, Window.MISSING),
        _is_asked,
    ),
    Law("a snapshot beside the line asks", box_of(Beside.THIS_OR_LATER), _is_asked),
    Law("a later entry asks", box_of(*NOT_FOUND, Later.PREPARED), _is_asked),
    Law(
        "what may have come with a branch asks",
        box_of(*NOT_FOUND, Entry.NONE, *_but(Branch.NOT)),
        _is_asked,
    ),
    Law("what an old name has asks", box_of(*_but(OldName.NONE, OldName.UNPROVEN)), _is_asked),
    Law(
        "a new batch needs a proof",
        box_of(*NEW_HERE, Journal.SAYS_NOTHING, History.EXPIRED),
        _is_asked,
    ),
    Law(
        "a first batch of a registered stream needs a proof",
        box_of(*NOT_FOUND, Entry.NONE, *REGISTERED, Journal.SAYS_NOTHING, History.EXPIRED),
        _is_asked,
    ),
    Law("another query asks", box_of(Query.ANOTHERS), _is_asked),
    Law("another incarnation asks", box_of(Incarnation.ANOTHERS), _is_asked),
    # -- nothing lost
    Law("another table asks", box_of(Table.ANOTHER), _is_asked),
    Law("a lost batch asks", box_of(*LOST), _is_asked),
    Law(
        "a lost batch that an attempt names asks",
        box_of(*NOT_FOUND, *_but(Previous.NONE, Previous.HELD)),
        _is_asked,
    ),
    Law("a base that was rolled back asks", box_of(*NOT_FOUND, Base.ROLLED_BACK), _is_asked),
    Law(
        "what the register wants asked is asked", box_of(Asked.TAKEN, Asked.MAY_BE_TAKEN), _is_asked
    ),
    Law("a younger table asks", box_of(Own.BELOW, Created.LATER), _is_asked),
    Law("a younger table without us asks", box_of(*NEW_HERE, Created.LATER), _is_asked),
    Law(
        "a gap with a note asks",
        box_of(Own.BELOW, Gap.BATCHES, Noted.TAKEN, Noted.MAY_BE_TAKEN),
        _is_asked,
    ),
    Law(
        "a gap without a register asks",
        box_of(Own.BELOW, Gap.BATCHES, Query.UNREGISTERED),
        _is_asked,
    ),
    Law(
        "a gap that is elsewhere asks", box_of(Own.BELOW, Gap.BATCHES, Elsewhere.WRITTEN), _is_asked
    ),
    Law(
        "a note of what no journal has asks",
        box_of(*NEW_HERE, Last.NONE, Noted.TAKEN, Noted.MAY_BE_TAKEN),
        _is_asked,
    ),
    Law("what is elsewhere asks", box_of(*NEW_HERE, Elsewhere.WRITTEN), _is_asked),
    # -- what is skipped is there
    Law(
        "nothing is skipped without a proof",
        box_of(*_but(Own.THIS_BATCH), Live.NONE, *_but(Branch.AS_THIS_USER)),
        _never(Outcome.COMMITTED),
    ),
    Law("no files without an attempt", box_of(Entry.NONE), _never(Outcome.REUSE)),
    Law("storage has nobody to ask", box_of(), _never(Outcome.STORAGE)),
    # -- no alarm in vain
    Law("what was published is skipped", _good(Own.THIS_BATCH), _is(Outcome.COMMITTED)),
    Law("the next batch goes on", _good(Own.BELOW, Gap.NONE, Entry.NONE), _is(Outcome.FRESH)),
    Law("its files are used", _good(Own.BELOW, Gap.NONE, Entry.PREPARED), _is(Outcome.REUSE)),
    Law(
        "where our snapshot stands, later entries are no alarm",
        _good(Own.BELOW, Gap.NONE, *Later),
        _goes_on,
    ),
    Law("batches without rows are no alarm", _good(Own.BELOW, Query.OURS), _goes_on),
    Law(
        "an attempt that was not published is used",
        _good(*NOT_FOUND, Entry.PREPARED, *_but(Window.NONE, Window.MISSING)),
        _is(Outcome.REUSE),
    ),
    Law(
        "a live file stops nothing",
        _good(*NOT_FOUND, Entry.PREPARED, Window.MISSING, Live.LIVE),
        _is(Outcome.COMMITTED),
    ),
    Law(
        "what came with a branch is skipped",
        _good(Own.NONE, Entry.NONE, Branch.AS_THIS_USER),
        _is(Outcome.COMMITTED),
    ),
    Law(
        "a live file beside the line is enough",
        _good(Own.NONE, Beside.THIS_OR_LATER, Live.LIVE),
        _is(Outcome.COMMITTED),
    ),
    *(
        Law(
            f"a batch that is new goes on: {proof}",
            _good(*NOT_FOUND, Entry.NONE, *values),
            _goes_on,
        )
        for proof, values in (
            ("the journal vouches", (Journal.VOUCHES,)),
            ("all snapshots stand", (History.WHOLE,)),
            ("a stream begins", (Query.UNREGISTERED, Number.FIRST)),
            ("a new sink", (Sink.NEW,)),
        )
    ),
    # -- what is said, and what an operator has decided
    Law("what no manifest mentions is said", box_of(*NOT_FOUND, Last.UNPROVEN), _says),
    Law("what no manifest mentions of an old name is said", box_of(OldName.UNPROVEN), _says),
    Law("a gap is said", box_of(Own.BELOW, Gap.BATCHES), _says),
    *(
        Law(
            "what an operator has let in is not asked for proofs",
            box_of(*NOT_FOUND, *values),
            lambda end: not any(row.step in (Step.AGE, Step.NOTED, Step.NEW) for row in end.met),
        )
        for values in (
            (Table.ANOTHER,),
            (Query.UNREGISTERED, Query.OURS, Incarnation.NONE, *LOST_UNDER_OLD_NAME),
        )
    ),
    Law(
        "what an operator has let in is written",
        box_of(),
        lambda end: (
            not end.is_let_in
            or end.outcome is not Outcome.COMMITTED
            or any(
                row.step in (Step.OWN, Step.BESIDE, Step.ATTEMPT, Step.BRANCH) for row in end.met
            )
        ),
    ),
)
"""What holds of a first batch."""


HELD = (Remembered.NONE, Remembered.STANDS, Remembered.EXPIRED)

NEXT_LAWS = (
    Law("a batch is not written twice by a run", box_of(Order.NOT_AFTER), _is_asked),
    Law("what another run has published is not written", box_of(Since.THE_BATCH), _is_asked),
    Law(
        "a last snapshot that is not known to be there asks",
        box_of(*_but(*HELD)),
        _is_asked,
    ),
    Law(
        "what was committed and has expired proves nothing", box_of(Finished.HAD_EXPIRED), _is_asked
    ),
    Law("ids that were used again prove nothing", box_of(Seen.NOT_HELD), _is_asked),
    Law("what may have been missed is asked", box_of(Followed.MAY_HAVE_MISSED), _is_asked),
    Law(
        "an earlier run may have published in a gap",
        box_of(Since.MISSING, *_but(Followed.NOBODY)),
        _is_asked,
    ),
    Law(
        "a batch that nobody has goes on",
        box_of(
            Order.AFTER,
            Finished.KNOWN,
            *HELD,
            Seen.HELD,
            Followed.NOBODY,
            Since.NOT_THE_BATCH,
            Since.MISSING,
        ),
        _is(Outcome.FRESH),
    ),
    *(
        Law(
            "a last snapshot that is gone stops the run, where storage has nothing",
            box_of(Order.AFTER, Finished.KNOWN, *values),
            lambda end: end.is_let_in or end.outcome is not Outcome.STORAGE,
        )
        for values in (
            (Remembered.REPLACED, Remembered.ROLLED_BACK),
            (Remembered.NOTED, Remembered.DOUBTED, Attempts.NOT_JOURNALLED),
        )
    ),
    Law(
        "nobody is stopped in vain",
        box_of(Order.AFTER, *HELD, *_but(Since.THE_BATCH)),
        lambda end: end.outcome in (Outcome.FRESH, Outcome.STORAGE),
    ),
    Law(
        "where storage may know more, nobody is stopped",
        box_of(Order.AFTER, Remembered.NOTED, Remembered.DOUBTED, Attempts.JOURNALLED),
        _is(Outcome.STORAGE),
    ),
    Law(
        "no files, nothing skipped",
        box_of(),
        lambda end: end.outcome not in (Outcome.REUSE, Outcome.COMMITTED),
    ),
)
"""What holds of a later batch."""
