"""The facts on which a batch is judged, one enumeration for each (exactly-once.md §9).

A fact is what the evidence shows of one question. The answer is one of a few values. Each docstring
says what the evidence proves, what it does not prove, and where it can be missing. The rows in
`judgement.py` decide by the facts, and `known_facts.py` finds the facts in the evidence. A value is
defined for every batch, so that a fact can be asked for at any time. This module reads and writes
nothing.

The name of a fact is a short question: `BaseHeld` asks whether the base is held, and
`JournalVouches` asks whether a missing entry in the journal proves anything.
"""

from enum import Enum

# -- a batch judged from the storage: who and where -----------------------------------------------


class TableSame(Enum):
    """Is the table the one to which the stream wrote? The digest of the first schema in the
    register, or else in the journal's entries, is compared with that of the table.

    If the digests differ, the table was dropped and created again. If they are equal, it may still
    have been created again: `TableCreated` asks for that. Without a register and entries there is
    nothing to compare, and the table counts as the same.
    """

    SAME = "the same, as far as it is known"
    ANOTHER = "created again"


class UserRegistered(Enum):
    """Whose register has this commit user?

    A register is written before a first batch is committed. So a commit user without a register has
    committed nothing in this table, with three exceptions: the register was lost, the snapshots
    came with a copy, or an older release wrote them. A register or a run without a query id counts
    as ours.
    """

    UNREGISTERED = "none"
    OURS = "ours"
    ANOTHERS = "another query's"


class IdentityShared(Enum):
    """Has another query written to the table from our checkpoint path, under our query's name, or
    as our commit user? The marks of snapshots and the registers of other users show that.

    Another query's mark proves that our checkpoint is new, or that the name or user is shared. It
    proves nothing where another sink of our query is registered with the same path or name: the
    other query was judged when that sink was admitted. Marks are missing where snapshots and
    registers are gone. The question is asked only of a stream that has no register and no snapshot.
    """

    NONE = "none"
    ANOTHERS = "another query's"


class OwnStands(Enum):
    """What is the stream's newest snapshot in the lineage, by commit user, query id and identifier?

    The snapshot proves that its batch was published, and that no snapshot of ours above it is part
    of the table now. Expiry removes the oldest snapshots first, so no newer snapshot of ours has
    expired. The snapshot does not prove that the batches between its own and the judged one had
    rows. A snapshot is missing where it has expired, was rolled back or was replaced. `NONE` alone
    does not tell which of these happened.
    """

    NONE = "none"
    BELOW = "of an earlier batch"
    THIS_BATCH = "of this batch"
    OTHER_OFFSETS = "of this batch, with other source offsets"
    THIS_RUN = "of this batch, by this very run"
    ABOVE = "of a later batch"
    UNMARKED = "of this batch or a later one, without a query id"
    PASSED_OVER = "would refuse this batch, but an operator let the checkpoint continue despite it"


class OldNameWrote(Enum):
    """What does the query have, or did it have, in the table under an old name of this sink? An old
    name is another commit user of the query. It was in no run together with this sink, and no sink
    of this run writes as that user.

    Nothing proves that the two are one sink, so this fact can only make a row refuse or warn.
    Registers that keep no runs, or have lost them, let a name count as old. The value is `NONE`,
    too, where the sink has this batch or a later one under its own name, and where it has a
    snapshot and no register. Where the sink has the batch before this one under its own name, no
    loss is looked for. The first value that holds counts: `PUBLISHED`, then `MAY_HAVE_PUBLISHED`,
    then the first loss in the order of the names, then `UNPROVEN`. A registered sink without a
    journal and a snapshot may leave a doubt that only a journal could settle. The doubt counts as
    `MAY_HAVE_PUBLISHED`, after all losses and before `UNPROVEN`.
    """

    NONE = "none, or nothing is missing of it"
    PUBLISHED = "has published this batch or a later one"
    MAY_HAVE_PUBLISHED = "may have published it in a snapshot that has expired"
    UNPROVEN = "nothing says that its last batch is lost, but no manifest mentions its files"
    ROLLED_BACK = "its last batch was taken away"
    REPLACED = "another engine's commit stands in the place of its last batch"
    MAY_HAVE_LOST = "whether its last batch is in the table is not known"
    WRITTEN_ELSEWHERE = "an earlier batch of it was written in another branch"


# -- a batch judged from the storage: what is gone ------------------------------------------------


class NotesAsked(Enum):
    """What do the notes of removals say about all earlier batches? The notes are read only if the
    register demands it, as it does after a fast forward. A fast forward replaces the stream's own
    journal and snapshots by those of a branch, so these prove nothing about the stream.
    """

    NOT_ASKED = "the register does not demand it"
    NOTHING = "no note names one"
    REMOVED = "one was removed"
    MAY_BE_REMOVED = "whether one was removed is not known"


class TableCreated(Enum):
    """Is the table, or the branch, younger than the newest earlier batch that the checkpoint has
    done?

    If so, this is another table or branch, although its schema has the same digest. Two clocks are
    compared, which may differ by five minutes. The checkpoint may not show when that batch was
    done. What the stream has left in the table outweighs the clocks.
    """

    EARLIER = "no, or that is not known"
    LATER = "yes"


class LastHeld(Enum):
    """What became of the last batch, if it was committed above our newest snapshot? The last batch
    is the newest earlier one that the journal's entries name. It is known to be committed, because
    Spark went on after it.

    `HELD` does not prove that the rows of the batch are there: as far as records show, its snapshot
    has expired. If the journal is off or gone, the value is `NONE`. If Spark may have gone on
    without this commit user, and no note names the batch, the value is `NONE` or `HELD`.
    """

    NONE = "none is known"
    HELD = "in the table, or expired"
    UNPROVEN = "expired, but no manifest mentions its files"
    ROLLED_BACK = "taken away"
    REPLACED = "another engine's commit stands in its place"
    BESIDE_THE_LINE = "its snapshot stands beside the table's line"
    CANNOT_BE_KNOWN = "records contradict each other, or are missing"


class GapLeft(Enum):
    """Are there batches that our newest snapshot does not show? Such batches lie between the batch
    of that snapshot and the judged one, or they are not later than that batch, and were written
    again above that snapshot.

    Batches without rows leave no snapshot, so a gap proves nothing by itself. Batches may have been
    written again if an operator let the checkpoint continue over our newest snapshot, or over one
    above it. Where both values hold, `BATCHES` counts.
    """

    NONE = "no"
    BATCHES = "yes, between"
    WRITTEN_AGAIN = "some may have been written again above it"


class EarlierNoted(Enum):
    """What do the notes of removals say of the earlier batches above our newest snapshot? Batches
    for which the journal is complete do not count, and neither do those that an operator has given
    up.

    A note proves that its batch was removed if the removal has ended, and the table that remained
    was surely not built on the batch. Only removals of this package leave notes. A removal that
    also took expired snapshots does not name all of them. A note that cannot be read may name any
    batch. The table may have the earlier rows of batches that were written again (`GapLeft`). Of
    these batches, `MAY_BE_REMOVED` is the most that is known.
    """

    NOTHING = "no note names one"
    REMOVED = "one was removed"
    MAY_BE_REMOVED = "whether one was removed is not known"


class EarlierElsewhere(Enum):
    """Did the query write an earlier batch under this commit user in another branch, or in main,
    instead of in this branch?

    Such a batch proves that the stream was pointed to the other branch. It proves nothing if one
    run has written in both places: then the query has a sink for each. A branch that cannot be
    read, or was deleted, shows nothing. This is asked only of a stream that is registered here: a
    new stream may be the second sink of a run whose first sink has not begun.
    """

    NO = "no"
    WRITTEN = "yes"


# -- a batch judged from the storage: this batch --------------------------------------------------


class LaterPrepared(Enum):
    """Does the journal have an entry of a later batch of this table? The answer is also yes if
    snapshots have expired, and the judged batch or a later one was given up.

    A later batch came after the judged one had been done, so the checkpoint is older than the
    table's history. Without an entry nothing is proven: the journal keeps the last two, and may be
    off.
    """

    NONE = "none"
    PREPARED = "one was prepared, or let go on after what was given up"


class OursBeside(Enum):
    """Is there a snapshot of ours, with the judged batch or a later one, that is not known to lie
    in the table's lineage?

    The snapshot was published. It may not be part of the table: its id may have been used again
    after it had expired, or the lists that would show it are missing.
    """

    NONE = "none"
    THIS_OR_LATER = "one stands"


class AttemptPrepared(Enum):
    """Does the journal have an attempt of this query at this very batch of this table, which no
    operator has given up?

    The attempt had begun to commit. The entry does not say whether it was published. If there is no
    entry, and the journal is complete for the batch (`JournalVouches`), the batch has not reached
    its commit.
    """

    NONE = "none"
    PREPARED = "an attempt was prepared"


class PreviousHeld(Enum):
    """What became of the batch that the attempt names as the one published before it, if no
    snapshot of ours is left?

    The journal entry of the attempt names that batch with its snapshot, so the batch was published.
    `HELD` does not prove that its rows are there.
    """

    NONE = "none is named"
    HELD = "in the table, or expired"
    ROLLED_BACK = "taken away"
    REPLACED = "another commit has its id in the lineage"
    CANNOT_BE_KNOWN = "records contradict each other, or are missing"


class BaseHeld(Enum):
    """What became of the base, the snapshot on which the journalled attempt at the batch was
    prepared?

    `ROLLED_BACK`: the table has no snapshot as new as the base. `CUT`: rollbacks of this package
    removed the base. The lowest target of these rollbacks, the cut, is known, and no earlier batch
    of ours lay above it. Other engines leave no note of what they remove.
    """

    NONE = "no attempt, or prepared for the empty table"
    NOT_ABOVE = "not above the newest snapshot"
    CUT = "taken by rollbacks that took no earlier batch of ours"
    ROLLED_BACK = "the table has no snapshot as new"


class WindowWhole(Enum):
    """Are all snapshots still there that the table got after the journalled attempt at the batch
    was prepared?

    If all are there, and none has the batch, the attempt was not published. If a snapshot is
    missing, the attempt may have been published as that snapshot. If rollbacks removed the base of
    an attempt that was already published, they also removed the attempt.
    """

    NONE = "no attempt"
    ALL_SINCE_BASE = "all since its base"
    ALL_SINCE_CUT = "all since the end of the rollbacks that took its base"
    MISSING = "some are missing"


class FilesLive(Enum):
    """Is a data file of an attempt at this batch live in the newest snapshot?

    One live file proves that its attempt was published. Without one nothing is proven: the files
    may have been compacted, overwritten or deleted since.
    """

    NONE = "none is, or no attempt is known"
    LIVE = "one is"


class BatchInherited(Enum):
    """Did this batch come with the branch, whose stream has no register here? The journals of main
    are asked, and the files that the branch's manifests mention.

    A file that the manifests mention proves that its attempt is part of the branch. If no file is
    mentioned, compactions may hide the attempt, unless it was made above the branch point, or
    main's snapshots show that it was not published below that point. Main's journal may be off, or
    have dropped the entry.
    """

    NOT = "no, or this is main"
    AS_THIS_USER = "yes, as this commit user"
    AS_ANOTHER = "yes, as another commit user of the query"
    MAY_BE = "that is not known"


class BatchFirst(Enum):
    """Is this the first batch of a checkpoint?"""

    FIRST = "batch 0"
    LATER = "a later batch"


class SinkNew(Enum):
    """Is this a sink that the query got after it had written to the table under another commit
    user?

    A sink writes its register before it commits, so a sink without a register has committed
    nothing. But the register may have been lost. Then the journal has the sink's batches, or a note
    names the sink's user.
    """

    NEW = "yes"
    NOT_NEW = "no, or that is not known"


class JournalVouches(Enum):
    """Does the journal have each attempt at this batch or a later one that reached its commit?

    The register says from which batch on the journal has all attempts. The register is believed if
    the run that it names still had its claim when this run began. Then a missing entry proves that
    no attempt reached its commit.
    """

    VOUCHES = "yes"
    SAYS_NOTHING = "no, or that is not known"


class HistoryWhole(Enum):
    """Do all snapshots of the table stand, or was our newest one found?

    If all stand, and none has the batch, then the batch was not published, or its snapshot was
    removed.
    """

    WHOLE = "yes"
    EXPIRED = "no, or that is not known"


FIRST_BATCH: tuple[type[Enum], ...] = (
    TableSame,
    UserRegistered,
    OwnStands,
    IdentityShared,
    OldNameWrote,
    NotesAsked,
    TableCreated,
    LastHeld,
    GapLeft,
    EarlierNoted,
    EarlierElsewhere,
    LaterPrepared,
    OursBeside,
    FilesLive,
    AttemptPrepared,
    PreviousHeld,
    BaseHeld,
    WindowWhole,
    BatchInherited,
    BatchFirst,
    SinkNew,
    JournalVouches,
    HistoryWhole,
)
"""The facts of a batch that is judged from the storage."""


# -- a later batch of a run -----------------------------------------------------------------------


class BatchAfter(Enum):
    """Does the batch come after the last one that this run has finished?

    Spark runs the batches of a run in order. So a batch that does not come after the last finished
    one is another sink's.
    """

    AFTER = "yes"
    NOT_AFTER = "no"


class FinishedKnown(Enum):
    """Is it certain that no earlier run had committed a batch after the last one that this run has
    finished?

    An earlier run may have committed the last finished batch, in a snapshot that has expired. Then
    later batches may have been committed and have expired, too: the checkpoint may be an old copy.
    """

    KNOWN = "yes"
    HAD_EXPIRED = "no: it had been committed, and had expired"


class RememberedHeld(Enum):
    """What became of the last snapshot of the stream that the run remembers?

    A snapshot that stands proves that no rollback took anything below it. A snapshot that has
    expired proves this, too, unless a note of a later removal contradicts it. A rollback by another
    engine leaves no trace once the ids that it freed were used again and the new snapshots have
    expired.
    """

    NONE = "none is remembered"
    STANDS = "it is in the table"
    EXPIRED = "expired"
    REPLACED = "another commit has its id"
    ROLLED_BACK = "the table has no snapshot as new"
    NOTED = "a note says that it was taken away"
    DOUBTED = "whether it was taken away is not known"


class AttemptsJournalled(Enum):
    """Is the journal on, so that storage can judge a batch that is in doubt?"""

    JOURNALLED = "yes"
    NOT_JOURNALLED = "no: the journal is off"


class SeenHeld(Enum):
    """Is the newest snapshot that the run has seen part of the table, or has it expired?

    If so, the snapshots above it are new. If the snapshot is gone for another reason, its id and
    higher ids may have been used again.
    """

    HELD = "yes"
    NOT_HELD = "no, or that is not known"


class OthersFollowed(Enum):
    """May an earlier run of the stream, or a sink under another name, have batches that this run
    has not seen? `NOTHING_MISSED`: the run has a snapshot of its own, or what it has seen stands.
    """

    NOBODY = "no"
    NOTHING_MISSED = "yes, and none of them can have been lost unseen"
    MAY_HAVE_MISSED = "yes, and what it has seen is gone"


class OthersPublished(Enum):
    """What have others published since the run last looked at the table?

    A window with missing snapshots never counts as empty.
    """

    NOT_THE_BATCH = "not this batch or a later one"
    THE_BATCH = "this batch or a later one, under our commit user"
    MISSING = "not this batch as far as the snapshots stand, and some have expired"


LATER_BATCH: tuple[type[Enum], ...] = (
    BatchAfter,
    FinishedKnown,
    RememberedHeld,
    AttemptsJournalled,
    SeenHeld,
    OthersFollowed,
    OthersPublished,
)
"""The facts of a later batch."""
