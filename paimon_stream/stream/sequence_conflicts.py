"""What happens to a batch if other commits have used its sequence numbers meanwhile. The option
`paimon-stream.on-sequence-conflict` decides that. `commit/sequence.py` finds such conflicts.

Invariant: a numbering follows the option from the moment at which it is made. Every writer that has
this option takes its numbers here, so the commit need not look at the option.
"""

from dataclasses import replace

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import IndexConflict, SequenceConflict
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import ON_SEQUENCE_CONFLICT
from paimon_stream.table.table import Table


def rewrites(table: Table, conflict: SequenceConflict) -> bool:
    """Whether a batch is written again after a conflict of its sequence numbers or its hash index.
    A conflict of the hash index has nothing to do with numbers: the keys must get their buckets
    anew.
    """
    return (
        isinstance(conflict, IndexConflict)
        or table.options.value(ON_SEQUENCE_CONFLICT) == "rewrite"
    )


def fresh_numbering(
    table: Table,
    committer: Committer,
    known: Snapshot | None = None,
    *,
    own: SnapshotRef | None = None,
    replaces: bool,
) -> Numbering | None:
    """Sequence numbers for rows that are about to be written. None for a table without a primary
    key, and for a table whose rows get their numbers later.

    Args:
        table: the table, with the options of the writer.
        committer: the committer of the table.
        known: the snapshot above which the rows are numbered. None: the latest snapshot.
        own: the snapshot of the stream's newest batch, if the rows are those of a stream.
        replaces: whether the rows replace what is in the table.

    Raises:
        CorruptMetadata, StorageError: the numbers of the table cannot be read.
    """
    return _as_decided(table, committer.numbers(known, own=own, replaces=replaces))


def prepared_numbering(table: Table, judged_on: SnapshotRef | None) -> Numbering | None:
    """The numbering of files that an earlier run has written. None for a table without a primary
    key.

    Args:
        table: the table, with the options of the writer.
        judged_on: the snapshot on which the batch was judged. It is not later than the one on which
            the rows were numbered. None if the table was empty then.
    """
    if not table.schema.primary_keys:
        return None
    return _as_decided(table, Numbering(numbered_on=judged_on))


def _as_decided(table: Table, numbering: Numbering | None) -> Numbering | None:
    """The numbering, as the option `paimon-stream.on-sequence-conflict` demands it. If the option
    is `ignore`, other commits may have used the same numbers.
    """
    if numbering is None or table.options.value(ON_SEQUENCE_CONFLICT) != "ignore":
        return numbering
    return replace(numbering, may_be_shared=True)
