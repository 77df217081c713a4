"""A merge into an append table whose source is not in this process, but with executors: they merge its
rows with those of the target in shares (`merge_shares.py`), and this process publishes what they
wrote.

Invariant: whether others conflict with the merge is decided here, by the hashes of the source's keys
(`merge_hashes.py`). So a merge that takes long ends beside a writer that commits all the time.
"""

from collections.abc import Callable
from typing import Final, Protocol

import pyarrow as pa

from paimon_stream.change.matching import FileMatch
from paimon_stream.change.merge_clauses import MergePlan, MergeWords
from paimon_stream.change.merge_hashes import DistantRows, SourceDigest
from paimon_stream.change.merge_into import (
    AppendTableMerge,
    Computation,
    MergeReport,
    carried_out,
    merge_into,
)
from paimon_stream.change.merge_rows import MergeRows, source_rows
from paimon_stream.change.merge_shares import MergedShare, MergeShares, changed_positions
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.table import Table
from paimon_stream.write.task import WriteSpec

MOST_HERE: Final = 256 * 2**20
"""The most bytes of a source, and of the data files to be read, that this process merges if executors
can do it.
"""
_MOST_PASSED_ON: Final = 4 * 2**20
"""With more keys, they are not passed on to tasks: they would be more than 32 MiB in each of them."""


class DistantSource(Protocol):
    """The rows of a source that are with executors. They are the same at each call."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the source."""

    @property
    def num_rows(self) -> int:
        """How many rows the source has."""

    @property
    def size(self) -> int:
        """The bytes of these rows in Arrow."""

    @property
    def has_other_machines(self) -> bool:
        """Whether executors have more processors than this process."""

    def collected(self) -> pa.Table:
        """All rows, in this process."""

    def digest(self, plan: MergePlan, location: str) -> SourceDigest:
        """What the driver has to know of the keys. Raises what `source_rows` raises."""

    def shares(self) -> int:
        """In how many shares the rows are merged. A task holds the rows of the source of one."""

    def merged(self, work: MergeShares, scan: Scan) -> list[MergedShare]:
        """Merges all rows with those of the scan's files. If it raises, all files that tasks have
        written, as far as they are known, are removed. Raises the errors of `MergeShares`.
        """


class DistantMerge(AppendTableMerge):
    """A merge into an append table that executors carry out."""

    def __init__(
        self,
        load: Callable[[], Table],
        source: DistantSource,
        words: MergeWords,
        *,
        runtime: Runtime,
        progress: Progress,
    ) -> None:
        """See `AppendTableMerge`."""
        super().__init__(
            load, source.schema.empty_table(), words, runtime=runtime, progress=progress
        )
        self._distant = source

    @property
    def _source_rows(self) -> int:
        return self._distant.num_rows

    def _rows(self, plan: MergePlan, source: pa.Table, location: str) -> MergeRows | DistantRows:
        return DistantRows(plan, self._distant.digest(plan, location), source, location)

    def _count(self, computation: Computation) -> None:
        self._merge(computation, writes=False)

    def _write(self, computation: Computation) -> None:
        self._merge(computation, writes=True)

    def _merge(self, computation: Computation, *, writes: bool) -> None:
        """Has the rows merged, and notes what becomes of them."""
        rows = computation.rows
        assert isinstance(rows, DistantRows)
        scan = computation.scan
        table = computation.table
        few = len(rows.digest.hashes) <= _MOST_PASSED_ON
        empty, _ = source_rows(self._source, table.schema, table.location)
        work = MergeShares(
            spec=WriteSpec(
                storage=table.storage,
                schema=table.schema,
                options=table.options,
                runtime=self._runtime,
            ),
            plan=computation.plan,
            shares=self._distant.shares(),
            writes=writes,
            source=empty.schema,
            files={entry.file.file_name: place for place, entry in enumerate(scan.files)},
            digest=rows.digest if few else None,
        )
        done = self._distant.merged(work, scan)
        self._messages = tuple(message for share in done for message in share.messages)
        self._inserted = sum(share.inserted for share in done)
        rows.updated = sum(share.updated for share in done)
        rows.deleted = sum(share.deleted for share in done)
        positions = changed_positions(share.changed for share in done)
        for place, changed in sorted(positions.items()):
            computation.matches.append(FileMatch(scan.files[place], changed))
        size = sum(entry.file.file_size for entry in scan.files)
        self._progress("bytes", size, size)


def merge_source(
    load: Callable[[], Table],
    source: pa.Table | DistantSource,
    words: MergeWords,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    after_commit: AfterPublishing | None = None,
) -> MergeReport:
    """Merges a source in this process, or by executors if that is much work (`_is_much`). The
    arguments and errors are those of `merge_into`.
    """
    runtime = system()
    if isinstance(source, pa.Table) or not _is_much(load, source, words, runtime):
        rows = source if isinstance(source, pa.Table) else source.collected()
        return merge_into(
            load, rows, words, dry_run=dry_run, progress=progress, after_commit=after_commit
        )
    merge = DistantMerge(load, source, words, runtime=runtime, progress=progress)
    return carried_out(merge, runtime, dry_run=dry_run, after_commit=after_commit)


def _is_much(
    load: Callable[[], Table], source: DistantSource, words: MergeWords, runtime: Runtime
) -> bool:
    """Whether executors shall merge the source: it does not fit well into this process, or they are
    on other machines, and it has to be compared with many bytes of files. In a table with a primary
    key, this process merges.
    """
    if load().schema.primary_keys:
        return False
    if source.size > MOST_HERE:
        return True
    if not source.has_other_machines:
        return False
    here = AppendTableMerge(load, source.collected(), words, runtime=runtime, progress=silent)
    return source.size + here.bytes_to_read() > MOST_HERE
