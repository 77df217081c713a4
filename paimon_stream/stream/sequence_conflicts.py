"""What a writer has decided for batches whose sequence numbers others have used meanwhile, by the
option `paimon-stream.on-sequence-conflict`. `commit/sequence.py` finds such conflicts.
"""

from dataclasses import replace

from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import IndexConflict, SequenceConflict
from paimon_stream.options import ON_SEQUENCE_CONFLICT
from paimon_stream.table.table import Table


def rewrites(table: Table, conflict: SequenceConflict) -> bool:
    """Whether a batch is written again after that conflict. A conflict of the hash index has
    nothing to do with numbers: the keys must get their buckets anew.
    """
    return (
        isinstance(conflict, IndexConflict)
        or table.options.value(ON_SEQUENCE_CONFLICT) == "rewrite"
    )


def as_decided(table: Table, numbering: Numbering | None) -> Numbering | None:
    """The numbering with which a batch is committed: with `ignore`, its numbers may be shared."""
    if numbering is None or table.options.value(ON_SEQUENCE_CONFLICT) != "ignore":
        return numbering
    return replace(numbering, may_be_shared=True)
