"""The judgement of a batch as a table of evidence (exactly-once.md §9).

A row says which values the facts must have, the answer for these values, and the reason. It also
says how the judgement goes on if an operator lets the batch continue. Facts that a row does not
name may have any value. The rows are grouped into steps. The first row that fits counts. Within a
step, rows that fit the same facts agree, so only the order of the steps matters. Facts are asked
from left to right, and only until one does not fit. So a costly fact stands where it can still
change the answer. This module reads and writes nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

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

Ask: TypeAlias = Callable[[type[Enum]], Enum]
"""Gives the value of a fact."""


class Outcome(Enum):
    """The answer of a row. The first four outcomes end the judgement. A warning is logged. A
    refusal raises its error, unless an operator lets the batch continue.
    """

    FRESH = "Fresh"
    REUSE = "Reuse"
    COMMITTED = "AlreadyCommitted"
    STORAGE = "storage decides"
    WARNING = "a warning"
    CHECKPOINT_RESET = "CheckpointReset"
    CHECKPOINT_REWOUND = "CheckpointRewound"
    TABLE_REPLACED = "TableReplaced"
    TABLE_ROLLED_BACK = "TableRolledBack"
    COMMIT_LOST = "CommitLost"
    HISTORY_UNKNOWN = "HistoryUnknown"
    SHARED_CHECKPOINT = "SharedCheckpoint"
    DUPLICATE_WRITER = "DuplicateWriter"

    @property
    def is_verdict(self) -> bool:
        """Whether the outcome ends the judgement without an error."""
        return self in (Outcome.FRESH, Outcome.REUSE, Outcome.COMMITTED, Outcome.STORAGE)


class Step(Enum):
    """The questions about a batch that is judged from the storage, in the order in which they are
    decided.
    """

    TABLE = "Is it the same table?"
    WHO = "Is it the same checkpoint?"
    OLD_NAME = "Had this sink another name?"
    ASKED = "Must the notes be asked of all earlier batches?"
    OWN_AGAIN = "Our newest snapshot has this batch: was more written again above it, and lost?"
    OWN = "Our newest snapshot has this batch, or a later one"
    OWN_AGE = "Our newest snapshot has an earlier batch: is it of this table?"
    OWN_LAST = "…and is every batch that we committed after it still there?"
    OWN_GAP = "…and did the batches between have no rows?"
    OWN_ENTRY = "…then the batch is new"
    # From this step on there is no snapshot of ours, or only one that an operator let the
    # checkpoint pass over. From BRANCH on, the journal has no attempt at this batch, or an operator
    # has let the batch be written again.
    LATER = "No snapshot of ours: is the checkpoint older than the journal?"
    BESIDE = "…or does one stand beside the line?"
    ATTEMPT_PREVIOUS = (
        "An attempt was prepared: is the batch there that it names as the one before?"
    )
    ATTEMPT_BASE = "…and the snapshot on which it was prepared?"
    ATTEMPT_LAST = "…and our last batch?"
    ATTEMPT = "…was the attempt published?"
    BRANCH = "No attempt: did the batch come with the branch?"
    LAST = "Is our last batch there?"
    LET_IN = "Has an operator let the stream in without what it had?"
    BEGINS = "Does the stream begin?"
    AGE = "Is the table older than what the checkpoint has done?"
    NOTED = "Does a note name an earlier batch?"
    ELSEWHERE = "Is an earlier batch in another branch?"
    NEW = "Is it proven that the batch was never committed?"


class NextStep(Enum):
    """The questions about a later batch of a run, in the order in which they are decided."""

    ORDER = "Is it a later batch?"
    FINISHED = "Does the run know what became of its last batch?"
    REMEMBERED = "Is the last snapshot of the stream there?"
    SEEN = "Is what the run has seen part of the table?"
    FOLLOWED = "Can an earlier run have lost batches unseen?"
    SINCE = "Has anybody published the batch since?"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a step. `when` maps each fact to the values that fit, in the order in which the
    facts are asked. `outcome` is the answer of the row, and `why` is its reason. `then` says how
    the judgement goes on if the batch continues after a refusal or a warning: by a verdict or a
    later step. None: the batch cannot continue. A refusal or a warning uses the words of the fact
    `because`.
    """

    step: Step | NextStep
    when: dict[type[Enum], frozenset[Enum]]
    outcome: Outcome
    then: Outcome | Step | NextStep | None
    because: type[Enum]
    why: str

    def fits(self, ask: Ask) -> bool:
        """Whether the facts have the values of this row. The facts are asked in order, up to the
        first one that does not fit.
        """
        return all(ask(fact) in values for fact, values in self.when.items())


def _step(step: Step | NextStep, *rows: Callable[[Step | NextStep], Row]) -> tuple[Row, ...]:
    """Makes the rows of one step of the judgement."""
    return tuple(of_step(step) for of_step in rows)


def _row(
    *when: Enum,
    outcome: Outcome,
    why: str,
    then: Outcome | Step | NextStep | None = None,
    because: type[Enum] | None = None,
) -> Callable[[Step | NextStep], Row]:
    """Makes a row that fits if each fact has one of its values in `when`. A refusal by the row uses
    the words of the last fact, unless `because` names another fact.
    """
    values: dict[type[Enum], frozenset[Enum]] = {}
    for value in when:
        values[type(value)] = values.get(type(value), frozenset()) | {value}
    return partial(
        Row, when=values, outcome=outcome, then=then, because=because or type(when[-1]), why=why
    )


def decide(
    ask: Ask,
    rows: tuple[Row, ...],
    since: Step | NextStep | None = None,
) -> Row:
    """The first row that fits, searched from the step `since` on. `ask` gives the value of a fact.
    Raises `LookupError` if no row fits.
    """
    for row in _from(rows, since):
        if row.fits(ask):
            return row
    raise LookupError("no row fits the facts of this batch")


def _from(rows: tuple[Row, ...], since: Step | NextStep | None) -> Iterator[Row]:
    has_begun = since is None
    for row in rows:
        has_begun = has_begun or row.step is since
        if has_begun:
            yield row


_REGISTERED: Final = (UserRegistered.OURS, UserRegistered.ANOTHERS)
_NOT_ANOTHERS: Final = (UserRegistered.UNREGISTERED, UserRegistered.OURS)
_LOST_UNDER_OLD_NAME: Final = (
    OldNameWrote.ROLLED_BACK,
    OldNameWrote.REPLACED,
    OldNameWrote.MAY_HAVE_LOST,
    OldNameWrote.WRITTEN_ELSEWHERE,
)

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    *_step(Step.TABLE,
        _row(TableSame.ANOTHER, outcome=Outcome.TABLE_REPLACED, then=Step.WHO,
             why="Rows of earlier batches are not in a table that was created again."),
    ),
    *_step(Step.WHO,
        _row(UserRegistered.ANOTHERS, outcome=Outcome.CHECKPOINT_RESET, then=Step.ASKED,
             why="A new checkpoint reads the source again, and may bring rows that are here."),
        _row(UserRegistered.UNREGISTERED, OwnStands.NONE, IdentityShared.ANOTHERS,
             outcome=Outcome.CHECKPOINT_RESET, then=Step.ASKED,
             why="The same, where only the path, the name or the user shows it."),
    ),
    *_step(Step.OLD_NAME,
        _row(OldNameWrote.PUBLISHED, OldNameWrote.MAY_HAVE_PUBLISHED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.ASKED,
             why="A sink that was renamed would write again what it wrote under its old name."),
        _row(OldNameWrote.UNPROVEN, outcome=Outcome.WARNING, then=Step.ASKED,
             why="Nothing recorded says that the batch was taken away, so absence stops nothing."),
        _row(OldNameWrote.ROLLED_BACK, outcome=Outcome.TABLE_ROLLED_BACK, then=Step.ASKED,
             why="What a sink wrote under its old name is its own, and is lost."),
        _row(OldNameWrote.REPLACED, outcome=Outcome.COMMIT_LOST, then=Step.ASKED,
             why="The same, where another engine replaced it, so its files may be committed again."),
        _row(OldNameWrote.MAY_HAVE_LOST, OldNameWrote.WRITTEN_ELSEWHERE,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.ASKED,
             why="The same, where records do not show whether it is here."),
    ),
    *_step(Step.ASKED,
        _row(NotesAsked.REMOVED, outcome=Outcome.TABLE_ROLLED_BACK, then=Step.OWN_AGAIN,
             why="The snapshots and the journal may be those of a branch, so only notes tell of ours."),
        _row(NotesAsked.MAY_BE_REMOVED, outcome=Outcome.HISTORY_UNKNOWN, then=Step.OWN_AGAIN,
             why="The same, where a note is not certain or cannot be read."),
    ),
    *_step(Step.OWN_AGAIN,
        _row(OwnStands.THIS_BATCH, GapLeft.WRITTEN_AGAIN, EarlierNoted.MAY_BE_REMOVED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.COMMITTED,
             why="This batch is here. What came before it was written again, and a note names that."),
    ),
    *_step(Step.OWN,
        _row(OwnStands.UNMARKED, outcome=Outcome.CHECKPOINT_RESET, then=Outcome.FRESH,
             why="Whose batch it is, is not known; it is of this user, and not older than this one."),
        _row(OwnStands.ABOVE, outcome=Outcome.CHECKPOINT_REWOUND, then=Outcome.FRESH,
             why="The table has batches that the checkpoint does not know."),
        _row(OwnStands.OTHER_OFFSETS, outcome=Outcome.CHECKPOINT_REWOUND, then=Outcome.FRESH,
             why="The batch here was planned by a newer copy of the checkpoint, with other rows."),
        _row(OwnStands.THIS_RUN, outcome=Outcome.DUPLICATE_WRITER,
             why="A run has each batch once, so two of its sinks have one commit user."),
        _row(OwnStands.THIS_BATCH, outcome=Outcome.COMMITTED,
             why="An earlier run has published it."),
    ),
    *_step(Step.OWN_AGE,
        _row(OwnStands.BELOW, TableCreated.LATER,
             outcome=Outcome.TABLE_REPLACED, then=Outcome.FRESH,
             why="The snapshot is that of a run on a copy of the checkpoint, in a newer table."),
    ),
    *_step(Step.OWN_LAST,
        _row(OwnStands.BELOW, LastHeld.ROLLED_BACK, LastHeld.BESIDE_THE_LINE,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.FRESH,
             why="A later batch was committed, and our newest snapshot shows that it is not here."),
        _row(OwnStands.BELOW, LastHeld.REPLACED, outcome=Outcome.COMMIT_LOST, then=Outcome.FRESH,
             why="The same, where another engine replaced it, so its files may be committed again."),
        _row(OwnStands.BELOW, LastHeld.CANNOT_BE_KNOWN,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH,
             why="Spark went on under another name. Only a note speaks of the batch, and it is in doubt."),
    ),
    *_step(Step.OWN_GAP,
        _row(OwnStands.BELOW, UserRegistered.UNREGISTERED, GapLeft.BATCHES,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.OWN_ENTRY,
             why="Where nothing else of the stream is, the checkpoint went on elsewhere."),
        _row(OwnStands.BELOW, *_REGISTERED, GapLeft.BATCHES, EarlierNoted.REMOVED,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Step.OWN_ENTRY,
             why="No journal vouches for the batches between, and a note names one."),
        _row(OwnStands.BELOW, *_REGISTERED, GapLeft.BATCHES, GapLeft.WRITTEN_AGAIN,
             EarlierNoted.MAY_BE_REMOVED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.OWN_ENTRY,
             why="The same, where the note is in doubt, or the table may have the batch of before."),
        _row(OwnStands.BELOW, *_REGISTERED, GapLeft.BATCHES, EarlierNoted.NOTHING,
             EarlierElsewhere.WRITTEN,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.OWN_ENTRY,
             why="The stream was pointed to another branch, and back."),
        _row(OwnStands.BELOW, *_REGISTERED, GapLeft.BATCHES, EarlierNoted.NOTHING,
             EarlierElsewhere.NO,
             outcome=Outcome.WARNING, then=Step.OWN_ENTRY, because=GapLeft,
             why="Batches without rows leave nothing, so a gap by itself stops nothing."),
    ),
    *_step(Step.OWN_ENTRY,
        _row(OwnStands.BELOW, AttemptPrepared.NONE, outcome=Outcome.FRESH,
             why="Expiry takes the oldest first: had it been published, it would stand above our newest."),
        _row(OwnStands.BELOW, AttemptPrepared.PREPARED, outcome=Outcome.REUSE,
             why="The same, and the attempt was not published: its files may be."),
    ),
    *_step(Step.LATER,
        _row(LaterPrepared.PREPARED, outcome=Outcome.CHECKPOINT_REWOUND, then=Step.LAST,
             why="It came after this batch had been done. What was before this one may be lost."),
    ),
    *_step(Step.BESIDE,
        _row(OursBeside.THIS_OR_LATER, FilesLive.LIVE, outcome=Outcome.COMMITTED,
             why="A live file proves that its attempt is part of the table."),
        _row(OursBeside.THIS_OR_LATER, FilesLive.NONE,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH, because=OursBeside,
             why="It was published, and whether the table was built on it is open."),
    ),
    *_step(Step.ATTEMPT_PREVIOUS,
        _row(AttemptPrepared.PREPARED, PreviousHeld.ROLLED_BACK,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.FRESH,
             why="The batch before was published, and a note says that it was taken away."),
        _row(AttemptPrepared.PREPARED, PreviousHeld.REPLACED,
             outcome=Outcome.COMMIT_LOST, then=Outcome.FRESH,
             why="The batch before was published, and another commit of the lineage has its id."),
        _row(AttemptPrepared.PREPARED, PreviousHeld.CANNOT_BE_KNOWN,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH,
             why="The batch before was published, and records do not show whether it is here."),
    ),
    *_step(Step.ATTEMPT_BASE,
        _row(AttemptPrepared.PREPARED, BaseHeld.ROLLED_BACK,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.FRESH,
             why="Expiry never takes the newest snapshot, and earlier batches may have gone with it."),
    ),
    *_step(Step.ATTEMPT_LAST,
        _row(AttemptPrepared.PREPARED, LastHeld.ROLLED_BACK,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.FRESH,
             why="Spark went on after that batch, so it was committed, and it is gone."),
        _row(AttemptPrepared.PREPARED, LastHeld.REPLACED,
             outcome=Outcome.COMMIT_LOST, then=Outcome.FRESH,
             why="The same, where another engine replaced it, so its files may be committed again."),
        _row(AttemptPrepared.PREPARED, LastHeld.CANNOT_BE_KNOWN,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH,
             why="The same, where records do not show whether it is here."),
        _row(AttemptPrepared.PREPARED, LastHeld.UNPROVEN, outcome=Outcome.WARNING, then=Step.ATTEMPT,
             why="Nothing recorded says that the batch was taken away, so absence stops nothing."),
    ),
    *_step(Step.ATTEMPT,
        _row(AttemptPrepared.PREPARED, WindowWhole.ALL_SINCE_BASE, WindowWhole.ALL_SINCE_CUT,
             outcome=Outcome.REUSE,
             why="It could only have been published in one of these snapshots."),
        _row(AttemptPrepared.PREPARED, WindowWhole.MISSING, FilesLive.LIVE,
             outcome=Outcome.COMMITTED,
             why="A live file proves that its attempt was published."),
        _row(AttemptPrepared.PREPARED, WindowWhole.MISSING, FilesLive.NONE,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH, because=WindowWhole,
             why="It may have been published in a snapshot that is missing."),
    ),
    *_step(Step.BRANCH,
        _row(BatchInherited.AS_THIS_USER, outcome=Outcome.COMMITTED,
             why="The branch has the rows that were published in main."),
        _row(BatchInherited.AS_ANOTHER, BatchInherited.MAY_BE,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH,
             why="The rows may be here, by another name or in files that were compacted."),
    ),
    *_step(Step.LAST,
        _row(LastHeld.ROLLED_BACK, outcome=Outcome.TABLE_ROLLED_BACK, then=Step.LET_IN,
             why="Spark went on after that batch, so it was committed, and it is gone."),
        _row(LastHeld.REPLACED, outcome=Outcome.COMMIT_LOST, then=Step.LET_IN,
             why="The same, where another engine replaced it, so its files may be committed again."),
        _row(LastHeld.CANNOT_BE_KNOWN, outcome=Outcome.HISTORY_UNKNOWN, then=Step.LET_IN,
             why="The same, where records do not show whether it is here."),
        _row(LastHeld.UNPROVEN, outcome=Outcome.WARNING, then=Step.LET_IN,
             why="Nothing recorded says that the batch was taken away, so absence stops nothing."),
    ),
    *_step(Step.LET_IN,
        _row(TableSame.ANOTHER, outcome=Outcome.FRESH,
             why="An operator has let the stream continue in this table, which has nothing of it."),
        _row(*_NOT_ANOTHERS, IdentityShared.NONE, *_LOST_UNDER_OLD_NAME, outcome=Outcome.FRESH,
             why="An operator has let the sink continue without what its old name had."),
    ),
    *_step(Step.BEGINS,
        _row(UserRegistered.UNREGISTERED, BatchFirst.FIRST, outcome=Outcome.FRESH,
             why="A stream that begins."),
        _row(SinkNew.NEW, outcome=Outcome.FRESH,
             why="A sink that a query got, which had written here before."),
    ),
    *_step(Step.AGE,
        _row(TableCreated.LATER, outcome=Outcome.TABLE_REPLACED, then=Outcome.FRESH,
             why="What the checkpoint has done cannot be in a table that is younger."),
    ),
    *_step(Step.NOTED,
        _row(LastHeld.NONE, EarlierNoted.REMOVED,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Step.ELSEWHERE,
             why="The journal shows nothing of earlier batches, and a note names one."),
        _row(LastHeld.NONE, EarlierNoted.MAY_BE_REMOVED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Step.ELSEWHERE,
             why="The same, where a note is not certain or cannot be read."),
    ),
    *_step(Step.ELSEWHERE,
        _row(*_REGISTERED, EarlierElsewhere.WRITTEN, outcome=Outcome.HISTORY_UNKNOWN, then=Step.NEW,
             why="The stream was pointed to another branch, and back."),
    ),
    *_step(Step.NEW,
        _row(LaterPrepared.PREPARED, outcome=Outcome.FRESH,
             why="An operator has let the batch be written again."),
        _row(LaterPrepared.NONE, JournalVouches.VOUCHES, outcome=Outcome.FRESH,
             why="Each batch that reached its commit was journalled first, and this one was not."),
        _row(LaterPrepared.NONE, JournalVouches.SAYS_NOTHING, HistoryWhole.WHOLE,
             outcome=Outcome.FRESH,
             why="All snapshots of the table stand, and none has the batch."),
        _row(LaterPrepared.NONE, JournalVouches.SAYS_NOTHING, HistoryWhole.EXPIRED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.FRESH,
             why="It may have been published in a snapshot that has expired."),
    ),
)
"""The rows for a batch that is judged from the storage."""

NEXT_ROWS: Final[tuple[Row, ...]] = (
    *_step(NextStep.ORDER,
        _row(BatchAfter.NOT_AFTER, outcome=Outcome.DUPLICATE_WRITER,
             why="Spark runs the batches of a run in order, so two of its sinks have one commit user."),
    ),
    *_step(NextStep.FINISHED,
        _row(FinishedKnown.HAD_EXPIRED, outcome=Outcome.STORAGE,
             why="Later batches may have been committed, too, and have expired."),
    ),
    *_step(NextStep.REMEMBERED,
        _row(RememberedHeld.REPLACED, outcome=Outcome.COMMIT_LOST, then=Outcome.STORAGE,
             why="The rows of our last batch are not in the table."),
        _row(RememberedHeld.ROLLED_BACK, outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.STORAGE,
             why="Expiry never takes the newest snapshot."),
        _row(RememberedHeld.NOTED, AttemptsJournalled.NOT_JOURNALLED,
             outcome=Outcome.TABLE_ROLLED_BACK, then=Outcome.STORAGE, because=RememberedHeld,
             why="A note says so, and storage has nothing of the batch that could outweigh it."),
        _row(RememberedHeld.DOUBTED, AttemptsJournalled.NOT_JOURNALLED,
             outcome=Outcome.HISTORY_UNKNOWN, then=Outcome.STORAGE, because=RememberedHeld,
             why="Records contradict each other, and storage has nothing of the batch."),
        _row(RememberedHeld.NOTED, RememberedHeld.DOUBTED, AttemptsJournalled.JOURNALLED,
             outcome=Outcome.STORAGE,
             why="A live file of the batch may still show that it is there."),
    ),
    *_step(NextStep.SEEN,
        _row(SeenHeld.NOT_HELD, outcome=Outcome.STORAGE,
             why="Ids were used again, so snapshots that the run knows are others now."),
    ),
    *_step(NextStep.FOLLOWED,
        _row(OthersFollowed.MAY_HAVE_MISSED, outcome=Outcome.STORAGE,
             why="A run that has nothing of its own does not miss what the table has lost of others."),
    ),
    *_step(NextStep.SINCE,
        _row(OthersPublished.THE_BATCH, outcome=Outcome.SHARED_CHECKPOINT,
             why="Two runs work on one checkpoint."),
        _row(OthersPublished.MISSING, OthersFollowed.NOTHING_MISSED, outcome=Outcome.STORAGE,
             why="An earlier run may be at this batch, and have published it in what is missing."),
        _row(OthersPublished.MISSING, OthersFollowed.NOBODY, outcome=Outcome.FRESH,
             why="Nobody else can be at this batch; the commit asks for the claim."),
        _row(OthersPublished.NOT_THE_BATCH, outcome=Outcome.FRESH,
             why="All that was published since was seen."),
    ),
)
"""The rows for a later batch of a run."""
# fmt: on
