"""What is said of the facts of a judgement independently of its rows: which combinations cannot be, and
what holds for all others, whatever the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from paimon_stream.stream.facts import (
    AttemptPrepared,
    AttemptsJournalled,
    BaseHeld,
    BatchAfter,
    BatchFirst,
    BatchInherited,
    EarlierElsewhere,
    EarlierNoted,
    FilesLive,
    FinishedKnown,
    GapLeft,
    HistoryWhole,
    IdentityShared,
    JournalVouches,
    LastHeld,
    LaterPrepared,
    NotesAsked,
    OldNameWrote,
    OthersFollowed,
    OthersPublished,
    OursBeside,
    OwnStands,
    PreviousHeld,
    RememberedHeld,
    SeenHeld,
    SinkNew,
    TableCreated,
    TableSame,
    UserRegistered,
    WindowWhole,
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


REGISTERED = (UserRegistered.OURS, UserRegistered.ANOTHERS)
FOUND = _but(OwnStands.NONE)
NOT_FOUND = (OwnStands.NONE, OwnStands.PASSED_OVER)
AT_OR_ABOVE = _but(OwnStands.NONE, OwnStands.BELOW)
LOST = (LastHeld.ROLLED_BACK, LastHeld.REPLACED, LastHeld.BESIDE_THE_LINE, LastHeld.CANNOT_BE_KNOWN)
LOST_UNDER_OLD_NAME = _but(
    OldNameWrote.NONE,
    OldNameWrote.PUBLISHED,
    OldNameWrote.MAY_HAVE_PUBLISHED,
    OldNameWrote.UNPROVEN,
)

IMPOSSIBLE = (
    _cannot(
        "Only a register demands it.", UserRegistered.UNREGISTERED, *_but(NotesAsked.NOT_ASKED)
    ),
    _cannot(
        "The register keeps what was decided.",
        UserRegistered.UNREGISTERED,
        UserRegistered.ANOTHERS,
        OwnStands.PASSED_OVER,
    ),
    _cannot(
        "A register of another table is not believed.", TableSame.ANOTHER, OwnStands.PASSED_OVER
    ),
    _cannot("Asked only without a register.", *REGISTERED, IdentityShared.ANOTHERS),
    _cannot("Asked only without a snapshot of ours.", *FOUND, IdentityShared.ANOTHERS),
    _cannot(
        "A snapshot without a register shows what this name is.",
        UserRegistered.UNREGISTERED,
        *FOUND,
        *_but(OldNameWrote.NONE),
    ),
    _cannot(
        "This name has this batch or a later one itself.",
        *AT_OR_ABOVE,
        *_but(OldNameWrote.NONE),
    ),
    _cannot(
        "What was published since our snapshot stands above it.",
        OwnStands.BELOW,
        OldNameWrote.MAY_HAVE_PUBLISHED,
    ),
    _cannot(
        "None is above a snapshot of this batch.",
        *_but(*NOT_FOUND, OwnStands.BELOW),
        *_but(LastHeld.NONE),
    ),
    _cannot(
        "What was above a snapshot of ours that stands has not expired.",
        OwnStands.BELOW,
        LastHeld.HELD,
        LastHeld.UNPROVEN,
    ),
    _cannot(
        "Only the entry of this batch shows it, as `PreviousHeld`.",
        *NOT_FOUND,
        LastHeld.BESIDE_THE_LINE,
    ),
    _cannot("A gap lies above our snapshot.", *_but(OwnStands.BELOW), GapLeft.BATCHES),
    _cannot(
        "Asked only where our snapshot has this batch or an earlier one.",
        *_but(OwnStands.BELOW, OwnStands.THIS_BATCH),
        GapLeft.WRITTEN_AGAIN,
    ),
    _cannot(
        "The register keeps what was decided.",
        UserRegistered.UNREGISTERED,
        UserRegistered.ANOTHERS,
        GapLeft.WRITTEN_AGAIN,
    ),
    _cannot("The table may have the rows of before.", GapLeft.WRITTEN_AGAIN, EarlierNoted.REMOVED),
    _cannot("The walk ends at our newest snapshot.", *FOUND, OursBeside.THIS_OR_LATER),
    _cannot(
        "The walk ends at our newest snapshot, so nothing is missing.", *FOUND, HistoryWhole.EXPIRED
    ),
    _cannot("Only an attempt names it.", AttemptPrepared.NONE, *_but(PreviousHeld.NONE)),
    _cannot("Only an attempt has a base.", AttemptPrepared.NONE, *_but(BaseHeld.NONE)),
    _cannot("Only an attempt has one.", AttemptPrepared.NONE, *_but(WindowWhole.NONE)),
    _cannot("An attempt has one.", AttemptPrepared.PREPARED, WindowWhole.NONE),
    _cannot("Only an attempt has files.", AttemptPrepared.NONE, FilesLive.LIVE),
    _cannot("There is no cut.", *_but(BaseHeld.CUT), WindowWhole.ALL_SINCE_CUT),
    _cannot("Main is asked only without a register.", *REGISTERED, *_but(BatchInherited.NOT)),
    _cannot("A new sink has no register.", *REGISTERED, SinkNew.NEW),
    _cannot("A new sink has no journal.", SinkNew.NEW, AttemptPrepared.PREPARED),
    _cannot("A new sink has no journal.", SinkNew.NEW, LaterPrepared.PREPARED),
    _cannot("A new sink has no journal.", SinkNew.NEW, OwnStands.NONE, *_but(LastHeld.NONE)),
    _cannot(
        "The register says from where on.", UserRegistered.UNREGISTERED, JournalVouches.VOUCHES
    ),
    _cannot(
        "Asked only of a registered stream.", UserRegistered.UNREGISTERED, EarlierElsewhere.WRITTEN
    ),
    _cannot("Batch 0 is the first.", BatchFirst.FIRST, OwnStands.BELOW),
    _cannot("Batch 0 is the first.", BatchFirst.FIRST, *_but(LastHeld.NONE)),
    _cannot("Batch 0 is the first.", BatchFirst.FIRST, *_but(EarlierNoted.NOTHING)),
    _cannot(
        "Batch 0 is the first.", BatchFirst.FIRST, NotesAsked.REMOVED, NotesAsked.MAY_BE_REMOVED
    ),
    _cannot("Batch 0 is the first.", BatchFirst.FIRST, EarlierElsewhere.WRITTEN),
    _cannot("Batch 0 is the first.", BatchFirst.FIRST, OldNameWrote.UNPROVEN, *LOST_UNDER_OLD_NAME),
)
"""The combinations that cannot be, for a first batch. `known_facts.py` makes them so."""

IMPOSSIBLE_NEXT = (
    _cannot(
        "A run with a snapshot of its own sees what goes.",
        *_but(RememberedHeld.NONE),
        OthersFollowed.MAY_HAVE_MISSED,
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
    return not end.goes_on or any(row.outcome is Outcome.WARNING for row in end.met)


def _never(outcome: Outcome) -> Callable[[End], bool]:
    return lambda end: end.outcome is not outcome


GOOD: Mapping[type[Enum], frozenset[Enum]] = box_of(
    TableSame.SAME,
    UserRegistered.UNREGISTERED,
    UserRegistered.OURS,
    IdentityShared.NONE,
    OldNameWrote.NONE,
    OldNameWrote.UNPROVEN,
    NotesAsked.NOT_ASKED,
    NotesAsked.NOTHING,
    TableCreated.EARLIER,
    LastHeld.NONE,
    LastHeld.HELD,
    LastHeld.UNPROVEN,
    EarlierNoted.NOTHING,
    EarlierElsewhere.NO,
    LaterPrepared.NONE,
    OursBeside.NONE,
    PreviousHeld.NONE,
    PreviousHeld.HELD,
    BaseHeld.NONE,
    BaseHeld.NOT_ABOVE,
    BaseHeld.CUT,
    BatchInherited.NOT,
)
"""Nothing is recorded that was lost, moved, or taken by another: what each plain outage has."""


def _good(*values: Enum) -> Box:
    return {**GOOD, **box_of(*values)}


NEW_HERE = (*NOT_FOUND, AttemptPrepared.NONE, SinkNew.NOT_NEW, BatchFirst.LATER)

LAWS = (
    # -- nothing twice
    Law(
        "what our snapshot has is not written again",
        box_of(*_but(OwnStands.NONE, OwnStands.BELOW, OwnStands.PASSED_OVER)),
        _is_asked,
    ),
    Law(
        "a second sink of this run is never taken for a replay",
        box_of(OwnStands.THIS_RUN),
        lambda end: end.outcome not in (Outcome.COMMITTED, Outcome.FRESH, Outcome.REUSE),
    ),
    Law(
        "a live file is never written again",
        box_of(*NOT_FOUND, AttemptPrepared.PREPARED, WindowWhole.MISSING, FilesLive.LIVE),
        _is_asked,
    ),
    Law(
        "an attempt that may have been published asks",
        box_of(*NOT_FOUND, AttemptPrepared.PREPARED, WindowWhole.MISSING),
        _is_asked,
    ),
    Law("a snapshot beside the line asks", box_of(OursBeside.THIS_OR_LATER), _is_asked),
    Law("a later entry asks", box_of(*NOT_FOUND, LaterPrepared.PREPARED), _is_asked),
    Law(
        "what may have come with a branch asks",
        box_of(*NOT_FOUND, AttemptPrepared.NONE, *_but(BatchInherited.NOT)),
        _is_asked,
    ),
    Law(
        "what an old name has asks",
        box_of(*_but(OldNameWrote.NONE, OldNameWrote.UNPROVEN)),
        _is_asked,
    ),
    Law(
        "a new batch needs a proof",
        box_of(*NEW_HERE, JournalVouches.SAYS_NOTHING, HistoryWhole.EXPIRED),
        _is_asked,
    ),
    Law(
        "a first batch of a registered stream needs a proof",
        box_of(
            *NOT_FOUND,
            AttemptPrepared.NONE,
            *REGISTERED,
            JournalVouches.SAYS_NOTHING,
            HistoryWhole.EXPIRED,
        ),
        _is_asked,
    ),
    Law("another query asks", box_of(UserRegistered.ANOTHERS), _is_asked),
    Law("another query with this identity asks", box_of(IdentityShared.ANOTHERS), _is_asked),
    # -- nothing lost
    Law("another table asks", box_of(TableSame.ANOTHER), _is_asked),
    Law("a lost batch asks", box_of(*LOST), _is_asked),
    Law(
        "a lost batch that an attempt names asks",
        box_of(*NOT_FOUND, *_but(PreviousHeld.NONE, PreviousHeld.HELD)),
        _is_asked,
    ),
    Law("a base that was rolled back asks", box_of(*NOT_FOUND, BaseHeld.ROLLED_BACK), _is_asked),
    Law(
        "what the register wants asked is asked",
        box_of(NotesAsked.REMOVED, NotesAsked.MAY_BE_REMOVED),
        _is_asked,
    ),
    Law("a younger table asks", box_of(OwnStands.BELOW, TableCreated.LATER), _is_asked),
    Law("a younger table without us asks", box_of(*NEW_HERE, TableCreated.LATER), _is_asked),
    Law(
        "a gap with a note asks",
        box_of(OwnStands.BELOW, GapLeft.BATCHES, EarlierNoted.REMOVED, EarlierNoted.MAY_BE_REMOVED),
        _is_asked,
    ),
    Law(
        "what was written again, with a note, asks, also behind a batch that is here",
        box_of(GapLeft.WRITTEN_AGAIN, EarlierNoted.MAY_BE_REMOVED),
        lambda end: end.is_let_in or (_is_asked(end) and end.outcome is not Outcome.COMMITTED),
    ),
    Law(
        "a gap without a register asks",
        box_of(OwnStands.BELOW, GapLeft.BATCHES, UserRegistered.UNREGISTERED),
        _is_asked,
    ),
    Law(
        "a gap that is elsewhere asks",
        box_of(OwnStands.BELOW, GapLeft.BATCHES, EarlierElsewhere.WRITTEN),
        _is_asked,
    ),
    Law(
        "a note of what no journal has asks",
        box_of(*NEW_HERE, LastHeld.NONE, EarlierNoted.REMOVED, EarlierNoted.MAY_BE_REMOVED),
        _is_asked,
    ),
    Law("what is elsewhere asks", box_of(*NEW_HERE, EarlierElsewhere.WRITTEN), _is_asked),
    # -- what is skipped is there
    Law(
        "nothing is skipped without a proof",
        box_of(*_but(OwnStands.THIS_BATCH), FilesLive.NONE, *_but(BatchInherited.AS_THIS_USER)),
        _never(Outcome.COMMITTED),
    ),
    Law("no files without an attempt", box_of(AttemptPrepared.NONE), _never(Outcome.REUSE)),
    Law("storage has nobody to ask", box_of(), _never(Outcome.STORAGE)),
    # -- no alarm in vain
    Law("what was published is skipped", _good(OwnStands.THIS_BATCH), _is(Outcome.COMMITTED)),
    Law(
        "the next batch goes on",
        _good(OwnStands.BELOW, GapLeft.NONE, AttemptPrepared.NONE),
        _is(Outcome.FRESH),
    ),
    Law(
        "its files are used",
        _good(OwnStands.BELOW, GapLeft.NONE, AttemptPrepared.PREPARED),
        _is(Outcome.REUSE),
    ),
    Law(
        "where our snapshot stands, later entries are no alarm",
        _good(OwnStands.BELOW, GapLeft.NONE, *LaterPrepared),
        _goes_on,
    ),
    Law("batches without rows are no alarm", _good(OwnStands.BELOW, UserRegistered.OURS), _goes_on),
    Law(
        "an attempt that was not published is used",
        _good(*NOT_FOUND, AttemptPrepared.PREPARED, *_but(WindowWhole.NONE, WindowWhole.MISSING)),
        _is(Outcome.REUSE),
    ),
    Law(
        "a live file stops nothing",
        _good(*NOT_FOUND, AttemptPrepared.PREPARED, WindowWhole.MISSING, FilesLive.LIVE),
        _is(Outcome.COMMITTED),
    ),
    Law(
        "what came with a branch is skipped",
        _good(OwnStands.NONE, AttemptPrepared.NONE, BatchInherited.AS_THIS_USER),
        _is(Outcome.COMMITTED),
    ),
    Law(
        "a live file beside the line is enough",
        _good(OwnStands.NONE, OursBeside.THIS_OR_LATER, FilesLive.LIVE),
        _is(Outcome.COMMITTED),
    ),
    *(
        Law(
            f"a batch that is new goes on: {proof}",
            _good(*NOT_FOUND, AttemptPrepared.NONE, *values),
            _goes_on,
        )
        for proof, values in (
            ("the journal vouches", (JournalVouches.VOUCHES,)),
            ("all snapshots stand", (HistoryWhole.WHOLE,)),
            ("a stream begins", (UserRegistered.UNREGISTERED, BatchFirst.FIRST)),
            ("a new sink", (SinkNew.NEW,)),
        )
    ),
    # -- what is said, and what an operator has decided
    Law("what no manifest mentions is said", box_of(*NOT_FOUND, LastHeld.UNPROVEN), _says),
    Law("what no manifest mentions of an old name is said", box_of(OldNameWrote.UNPROVEN), _says),
    Law("a gap is said", box_of(OwnStands.BELOW, GapLeft.BATCHES), _says),
    *(
        Law(
            "what an operator has let in is not asked for proofs",
            box_of(*NOT_FOUND, *values),
            lambda end: not any(row.step in (Step.AGE, Step.NOTED, Step.NEW) for row in end.met),
        )
        for values in (
            (TableSame.ANOTHER,),
            (
                UserRegistered.UNREGISTERED,
                UserRegistered.OURS,
                IdentityShared.NONE,
                *LOST_UNDER_OLD_NAME,
            ),
        )
    ),
    Law(
        "who lets a rewound checkpoint continue is not asked whether its batch is new",
        box_of(*NOT_FOUND, LaterPrepared.PREPARED),
        lambda end: all(row.outcome.is_verdict for row in end.met if row.step is Step.NEW),
    ),
    Law(
        "what an operator has let in is written",
        box_of(),
        lambda end: (
            not end.is_let_in
            or end.outcome is not Outcome.COMMITTED
            or any(
                row.step in (Step.OWN_AGAIN, Step.OWN, Step.BESIDE, Step.ATTEMPT, Step.BRANCH)
                for row in end.met
            )
        ),
    ),
)
"""What holds of a first batch."""


HELD = (RememberedHeld.NONE, RememberedHeld.STANDS, RememberedHeld.EXPIRED)

NEXT_LAWS = (
    Law("a batch is not written twice by a run", box_of(BatchAfter.NOT_AFTER), _is_asked),
    Law(
        "what another run has published is not written",
        box_of(OthersPublished.THE_BATCH),
        _is_asked,
    ),
    Law(
        "a last snapshot that is not known to be there asks",
        box_of(*_but(*HELD)),
        _is_asked,
    ),
    Law(
        "what was committed and has expired proves nothing",
        box_of(FinishedKnown.HAD_EXPIRED),
        _is_asked,
    ),
    Law("ids that were used again prove nothing", box_of(SeenHeld.NOT_HELD), _is_asked),
    Law("what may have been missed is asked", box_of(OthersFollowed.MAY_HAVE_MISSED), _is_asked),
    Law(
        "an earlier run may have published in a gap",
        box_of(OthersPublished.MISSING, *_but(OthersFollowed.NOBODY)),
        _is_asked,
    ),
    Law(
        "a batch that nobody has goes on",
        box_of(
            BatchAfter.AFTER,
            FinishedKnown.KNOWN,
            *HELD,
            SeenHeld.HELD,
            OthersFollowed.NOBODY,
            OthersPublished.NOT_THE_BATCH,
            OthersPublished.MISSING,
        ),
        _is(Outcome.FRESH),
    ),
    *(
        Law(
            "a last snapshot that is gone stops the run, where storage has nothing",
            box_of(BatchAfter.AFTER, FinishedKnown.KNOWN, *values),
            lambda end: end.is_let_in or end.outcome is not Outcome.STORAGE,
        )
        for values in (
            (RememberedHeld.REPLACED, RememberedHeld.ROLLED_BACK),
            (RememberedHeld.NOTED, RememberedHeld.DOUBTED, AttemptsJournalled.NOT_JOURNALLED),
        )
    ),
    Law(
        "nobody is stopped in vain",
        box_of(BatchAfter.AFTER, *HELD, *_but(OthersPublished.THE_BATCH)),
        lambda end: end.outcome in (Outcome.FRESH, Outcome.STORAGE),
    ),
    Law(
        "where storage may know more, nobody is stopped",
        box_of(
            BatchAfter.AFTER,
            RememberedHeld.NOTED,
            RememberedHeld.DOUBTED,
            AttemptsJournalled.JOURNALLED,
        ),
        _is(Outcome.STORAGE),
    ),
    Law(
        "no files, nothing skipped",
        box_of(),
        lambda end: end.outcome not in (Outcome.REUSE, Outcome.COMMITTED),
    ),
)
"""What holds of a later batch."""
