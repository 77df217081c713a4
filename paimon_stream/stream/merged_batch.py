"""A batch that is merged into the rows of the table: the second and the third step of a batch whose
stream has a merge (`change/merge.py`). `change/anew.py` computes the merge and computes it anew after
a conflict, as for a merge without a stream. What is published has the user and the id of the batch.

    the batch is judged ──► its rows come into memory, once ──► compute ──► publish_batch
                                                                  ▲              │
                                                                  └─ a conflict ◀┘

Invariant: the files of a merge are published by the computation that has written them, or never.
They fit only the rows from which they were computed, and others may have changed those. So no run
takes over the files of another run, or of an attempt whose snapshot was lost (`reuse.py`,
`lost_batches.py`). A run that is started again finds the batch published, or computes it on the
newest rows. The journal names the files nevertheless, so that whoever publishes the batch removes
those of dead attempts (`dead_attempts.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from paimon_stream.change.anew import ComputedChange, publish_computed
from paimon_stream.change.merge_into import merge_of
from paimon_stream.stream.publishing import BeforeCommit, publish_batch
from paimon_stream.stream.steps import JudgedBatch, PublishedBatch, WrittenBatch
from paimon_stream.table.table import load_table


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """The rows of a batch, as the source of a merge.

    Attributes:
        read: evaluates the rows, and returns them. It is called once for each run of the batch.
        drain: called in place of `read` if the batch is in the table.
        before_commit: the user's function, which can veto. It is called again if the merge is
            computed anew.
    """

    read: Callable[[], pa.Table]
    drain: Callable[[], object]
    before_commit: BeforeCommit | None = None


def merge_batch(judged: JudgedBatch, source: MergeSource) -> PublishedBatch:
    """Merges the rows of a batch into the table, in one snapshot. If the merge changes nothing, the
    batch is published as one without rows. Raises the errors of `publish_computed` and
    `publish_batch`.
    """
    run = judged.run
    assert run.merge is not None
    clock = run.runtime.clock
    began = clock.monotonic()
    attempts: list[ComputedChange] = []

    def publish(computed: ComputedChange | None) -> PublishedBatch:
        if computed is not None:
            attempts.append(computed)
        millis = (clock.monotonic() - began) * 1000
        return publish_batch(_written(judged, computed, millis), source.before_commit)

    load = partial(load_table, run.storage, run.options)
    change = merge_of(load, source.read(), run.merge, run.runtime)
    published = publish_computed(change, publish)
    if published is None:
        published = publish(None)
        if attempts:  # others have changed the rows so that nothing is left to do
            run.journal.remove(judged.batch.batch_id)
    return published


def _written(judged: JudgedBatch, computed: ComputedChange | None, millis: float) -> WrittenBatch:
    """The batch with what its merge does. `millis` is how long it took to read the rows and to
    compute that, also for computations that others have made useless.
    """
    phases = {**judged.phases, "write": millis}
    fresh = judged.anew()
    if computed is None:
        return fresh.written((), phases=phases)
    written = fresh.on(computed.table).written(
        computed.messages, numbering=computed.numbering, phases=phases
    )
    return replace(written, change=computed)
