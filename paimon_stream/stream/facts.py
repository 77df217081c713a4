"""The facts on which a batch is judged, one enumeration for each (exactly-once.md §9).

A fact is what the evidence shows, in a few values. Each docstring says what the evidence proves,
what it does not prove, and where it can be missing. `judgement.py` has the decision,
`known_facts.py` finds the facts in the evidence. A value is defined for every batch, so that a fact
can be asked for at any time. Nothing here reads or writes.

A fact is named as a short sentence: a thing, and then what is asked of it. Its value is the answer.
So `BaseHeld` is no `Base`, and `JournalVouches` no `Journal`.
"""

from enum import Enum

# -- the first batch of a run: who and where ------------------------------------------------------


class TableSame(Enum):
    """Is this the table to which the stream wrote? The digest of the first schema in the register,
    or else in the journal's entries, is compared with that of the table.

    If they differ, the table was dropped and created again. If they are the same, that may still be
    so: `TableCreated` asks it. Without a register and entries there is nothing to compare, and the
    table counts as the same.
    """

    SAME = "the same, as far as it is known"
    ANOTHER = "created again"


class UserRegistered(Enum):
    """Whose register has this commit user?

    A register is written before a first batch is committed, so without one this commit user has
    committed nothing here, unless the file was lost, the snapshots came with a copy, or an older
    release wrote them. A register or a run without a query id counts as ours.
    """

    UNREGISTERED = "none"
    OURS = "ours"
    ANOTHERS = "another query's"


class IdentityShared(Enum):
    """Has another query written here from our checkpoint path, under our query's name, or as our
    commit user? Snapshots' marks and the registers of other users show it.

    Such a mark proves that the checkpoint is new, or that the name is shared. It does not where
    another sink of this query is registered with the path or name: the other query was judged when
    that sink was let in. The marks are missing where snapshots and registers are gone. This is
    asked only of a stream without register and snapshot.
    """

    NONE = "none"
    ANOTHERS = "another query's"


class OwnStands(Enum):
    """Our newest snapshot in the lineage, by commit user, query id and identifier.

    The snapshot proves that its batch was published, and that no snapshot of ours above it is part
    of the table now. Expiry removes the oldest first, so a snapshot that is gone from above was not
    removed by expiry. It does not prove that batches between its own and this one had rows. The
    snapshot is missing where it has expired, was rolled back or was replaced; `NONE` alone does not
    tell which.
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
    """What the query has, or had, here under another commit user, which may be an old name of this
    sink: the two were in no run together, and no sink of this run writes as that user.

    Nothing proves that the two are one sink, so this can only refuse. Registers that keep no runs,
    or have lost them, let a name count as old. The value is `NONE`, too, where the batch before
    this one, or a later one, was written under the sink's own name, and where the sink has a
    snapshot and no register. The first value that holds counts: `PUBLISHED`, then
    `MAY_HAVE_PUBLISHED`, then the others in the order of the names. For a registered sink whose
    journal is off, a doubt that only a journal could settle counts last, as `MAY_HAVE_PUBLISHED`.
    """

    NONE = "none, or nothing is missing of it"
    PUBLISHED = "has published this batch or a later one"
    MAY_HAVE_PUBLISHED = "may have published it in a snapshot that has expired"
    UNPROVEN = "nothing says that its last batch is lost, but no manifest mentions its files"
    ROLLED_BACK = "its last batch was taken away"
    REPLACED = "another engine's commit stands in the place of its last batch"
    MAY_HAVE_LOST = "whether its last batch is in the table is not known"
    WRITTEN_ELSEWHERE = "an earlier batch of it was written in another branch"


# -- the first batch of a run: what is gone -------------------------------------------------------


class NotesAsked(Enum):
    """What the notes of removals say of all earlier batches, where the register demands that the
    notes are asked. A fast forward has put the journal and the snapshots of a branch in the place
    of ours, and they would pass for ours.
    """

    NOT_ASKED = "the register does not demand it"
    NOTHING = "no note names one"
    REMOVED = "one was removed"
    MAY_BE_REMOVED = "whether one was removed is not known"


class TableCreated(Enum):
    """Is the table, or the branch, younger than the newest earlier batch that the checkpoint has done?

    If it is, this is another table or branch, although its schema has the same digest. Two clocks
    are compared, which may differ by five minutes. The checkpoint may not show the time. What the
    stream has left here outweighs the clocks.
    """

    EARLIER = "no, or that is not known"
    LATER = "yes"


class LastHeld(Enum):
    """What became of our newest earlier batch that is known to be committed, and is above our
    newest snapshot. The journal's entries name the batch: Spark went on after it.

    `HELD` does not prove that the rows of the batch are there: as far as records show, its snapshot
    has expired. The journal may be off or gone, and Spark may have gone on without this commit
    user; then `NONE`, or `HELD`. The first of these that holds counts.
    """

    NONE = "none is known"
    HELD = "in the table, or expired"
    UNPROVEN = "expired, but no manifest mentions its files"
    ROLLED_BACK = "taken away"
    REPLACED = "another engine's commit stands in its place"
    BESIDE_THE_LINE = "its snapshot stands beside the table's line"
    CANNOT_BE_KNOWN = "records contradict each other, or are missing"


class GapLeft(Enum):
    """Are there batches that our newest snapshot does not show: those between it and this batch, or
    those up to its own that were written again above it?

    Batches without rows leave none, so a gap proves nothing by itself. Batches may have been
    written again since an operator let the checkpoint continue over the snapshot, or over one above
    it. The first value that holds counts, in the order of `BATCHES`, `WRITTEN_AGAIN`.
    """

    NONE = "no"
    BATCHES = "yes, between"
    WRITTEN_AGAIN = "some may have been written again above it"


class EarlierNoted(Enum):
    """What the notes of removals say of the earlier batches above our newest snapshot for which no
    journal vouches, and that no operator has given up.

    A note proves that its batch was removed, if the run that wrote the note has ended. Only
    removals of this package leave notes, and those that removed expired snapshots do not name all
    of these. A note that cannot be read may name each batch. Of batches that were written again
    (`GapLeft`), the table may have the earlier rows, so `MAY_BE_REMOVED` is the most that is known.
    """

    NOTHING = "no note names one"
    REMOVED = "one was removed"
    MAY_BE_REMOVED = "whether one was removed is not known"


class EarlierElsewhere(Enum):
    """Has the query written an earlier batch, which is missing here, in another branch, or in main,
    under this commit user and in place of this history?

    Such a batch proves that the stream was pointed there. It does not where a run has written in
    both: the query has a sink for each then. What cannot be read there shows nothing, and a branch
    that was deleted has left nothing. This is asked only of a stream that is registered here: a new
    stream may be a second sink of a run in which the first has not begun.
    """

    NO = "no"
    WRITTEN = "yes"


# -- the first batch of a run: this batch ---------------------------------------------------------


class LaterPrepared(Enum):
    """Does the journal have an entry of a later batch of this table, or is this batch or a later
    one given up, and snapshots have expired?

    That batch came after this one had been done, so the checkpoint is older than the table's
    history. Without it nothing is proven: the last two entries are kept, and a journal may be off.
    """

    NONE = "none"
    PREPARED = "one was prepared, or let go on after what was given up"


class OursBeside(Enum):
    """Is there a snapshot of ours, with this batch or a later one, of which it is not known whether
    it lies in the lineage?

    The snapshot was published. It may not be part of the table: its id may have been used again
    after it had expired, or the lists that would show it are missing.
    """

    NONE = "none"
    THIS_OR_LATER = "one stands"


class AttemptPrepared(Enum):
    """Does the journal have an attempt at this very batch, of this query and table, that no
    operator has given up?

    The attempt was staged. The entry does not say whether it was published. Without one, the batch
    has not reached its commit, if the journal vouches for it (`JournalVouches`).
    """

    NONE = "none"
    PREPARED = "an attempt was prepared"


class PreviousHeld(Enum):
    """What became of the batch that the attempt names as the previous one, where no snapshot of
    ours is left.

    The entry names it with its snapshot, so it was published. `HELD` does not prove that its rows
    are there.
    """

    NONE = "none is named"
    HELD = "in the table, or expired"
    ROLLED_BACK = "taken away"
    REPLACED = "another commit has its id in the lineage"
    CANNOT_BE_KNOWN = "records contradict each other, or are missing"


class BaseHeld(Enum):
    """What became of the snapshot on which the attempt was prepared?

    `ROLLED_BACK`: the table has no snapshot as new. `CUT`: rollbacks of ours removed the base. It
    is known where they ended, and that none of our earlier batches lay above that. What other
    engines remove leaves no note.
    """

    NONE = "no attempt, or prepared for the empty table"
    NOT_ABOVE = "not above the newest snapshot"
    CUT = "taken by rollbacks that took no earlier batch of ours"
    ROLLED_BACK = "the table has no snapshot as new"


class WindowWhole(Enum):
    """Do all snapshots stand that the table got since the attempt was prepared?

    If all do, and none has the batch, the attempt was not published. If one is missing, the attempt
    may have been in that one. An attempt from before a cut cannot be in the table.
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
    """Is this a sink that the query got after it had written here under another commit user?

    A sink writes its register before it commits, so a sink without a register has committed
    nothing. The register may have been lost: then the journal has its batches, or a note names the
    user.
    """

    NEW = "yes"
    NOT_NEW = "no, or that is not known"


class JournalVouches(Enum):
    """Does the journal have each attempt at this batch or a later one that reached its commit?

    The register says from which batch on, and is believed if no later run had begun before this
    one. Then a missing entry proves that there was no attempt.
    """

    VOUCHES = "yes"
    SAYS_NOTHING = "no, or that is not known"


class HistoryWhole(Enum):
    """Do all snapshots of the table stand, or was ours found?

    If all stand, and none has the batch, it was not published, unless something removed it.
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
"""The facts of a run's first batch."""


# -- a later batch of a run -----------------------------------------------------------------------


class BatchAfter(Enum):
    """Does the batch come after the last one that this run has finished?

    Spark runs the batches of a run in order, so a batch that does not come after it is another
    sink's.
    """

    AFTER = "yes"
    NOT_AFTER = "no"


class FinishedKnown(Enum):
    """Is it known that no later batch was committed before the last one that this run has finished?

    If that one had been committed by an earlier run, and had expired, later ones may have been,
    too: the checkpoint may have been put back.
    """

    KNOWN = "yes"
    HAD_EXPIRED = "no: it had been committed, and had expired"


class RememberedHeld(Enum):
    """What became of the last snapshot of the stream that the run remembers?

    A snapshot that stands proves that nothing below it was removed. A snapshot that has expired
    proves that, too, unless a note of a later removal contradicts it. Another engine's rollback
    whose ids were used again and have expired leaves nothing that could.
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

    If so, the ids above it are new. If the snapshot is gone for another reason, ids were used
    again.
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
    """What others have published since the run last looked.

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
