"""Finds the rows of an append table that fulfil a condition, and remembers them file by file.

Invariant: a data file never changes. So its matching rows are searched once for one call of a user,
however often the change is computed anew. Only its deletion vector may mark more of them meanwhile.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.commit.premises import Premises
from paimon_stream.commit.vectors import DataFile
from paimon_stream.errors import InvalidData, NotFound, naming
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.read.condition_text import condition_in_text
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.rows import RowsOf, deleted_rows, rows_with_positions
from paimon_stream.read.scan import Scan, known_of, plan_scan
from paimon_stream.reports import Progress, silent
from paimon_stream.table.lineage import is_replaced
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import Vector

_THREADS: Final = 4


class FileMatch(NamedTuple):
    """A data file with matching rows.

    Attributes:
        entry: the file.
        positions: the positions of these rows in the file, ascending. Deleted rows are left out.
    """

    entry: ManifestEntry
    positions: Positions

    @property
    def data_file(self) -> DataFile:
        """The file, as deletion vectors name it."""
        return self.entry.partition, self.entry.bucket, self.entry.file.file_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """The rows that fulfil a condition at one snapshot.

    Attributes:
        scan: what was read: the files that may have such rows, with their deletion vectors.
        predicate: the condition.
        matches: the files with such rows.
    """

    scan: Scan
    predicate: Predicate
    matches: tuple[FileMatch, ...]

    @property
    def table(self) -> Table:
        """The table at the time of the search."""
        return self.scan.table

    @property
    def rows(self) -> int:
        """How many rows fulfil the condition."""
        return sum(len(match.positions) for match in self.matches)

    def vector_of(self, match: FileMatch) -> Vector | None:
        """The deletion vector of a file at that snapshot."""
        return self.scan.vectors.get(match.entry.file.file_name)


class MatchingRows:
    """The search for the rows that fulfil one condition."""

    def __init__(self, where: Any, progress: Progress) -> None:
        """`where` is a `pyarrow.compute.Expression`, or a condition as SQL text. `progress` is told
        how many bytes of files are searched.
        """
        self._where = where
        self._progress = progress
        self._schema_id: int | None = None
        self._known: dict[str, tuple[Vector | None, Positions]] = {}
        """The matching rows of the files that were searched, by the name of the file, and the
        deletion vector that the file had. All hold for one schema.
        """
        self._seen: SnapshotRef | None = None
        """The snapshot of the last search."""

    def find(self, table: Table) -> FoundRows:
        """Finds the rows at the newest snapshot. Reads the condition's columns of all files that
        may have such rows, and were not searched before.

        Raises:
            InvalidOption: the condition is neither an expression nor a text that can be computed.
            IncompatibleSchema: the condition does not fit the columns.
            InvalidData: the condition cannot be computed for a value.
            PaimonStreamError: the errors of reading.
        """
        where = self._where
        if isinstance(where, str):
            with naming(table.location):
                where = condition_in_text(where, table.schema, "where")
        predicate = Predicate.of(where, table.schema, table.location)
        if table.schema.id != self._schema_id:
            self._schema_id = table.schema.id
            self._known = {}
        scan = plan_scan(table, filter=where)  # the filter leaves out files
        if self._is_rolled_back(scan):
            self._known = {}
        self._seen = SnapshotRef.of_optional(scan.snapshot)
        self._search(scan, predicate, self._progress)
        matches = []
        for entry in scan.files:
            positions = self._positions(scan, entry)
            if len(positions):
                matches.append(FileMatch(entry, positions))
        return FoundRows(scan=scan, predicate=predicate, matches=tuple(matches))

    def premises(
        self,
        found: FoundRows,
        vectors: Iterable[FileMatch],
    ) -> Premises:
        """The premises of a change of the rows that were found. `vectors` are the files whose
        deletion vectors must not change.
        """
        return Premises(
            found.table,
            found.scan.snapshot,
            read=found.scan.files,
            may_hold=partial(self._may_hold, found),
            changed=[match.entry for match in found.matches],
            vectors={match.entry.file.file_name: found.vector_of(match) for match in vectors},
        )

    def _is_rolled_back(self, scan: Scan) -> bool:
        """Whether the snapshot of the last search is not part of the table any more. A rollback
        brings rows back that were deleted at that snapshot, so nobody has looked at them.
        """
        seen = self._seen
        if seen is None:
            return False
        if scan.snapshot is None or scan.snapshot.id < seen.id:
            return True
        snapshots = SnapshotStore(scan.table.storage)
        return is_replaced(snapshots, seen, scan.snapshot) is not False

    def _search(self, scan: Scan, predicate: Predicate, progress: Progress) -> None:
        """Searches the files of the scan that were not searched before."""
        entries = [entry for entry in scan.files if entry.file.file_name not in self._known]
        rows_of = rows_with_positions(replace(scan, columns=predicate.columns))
        bytes_in_all = sum(entry.file.file_size for entry in entries)
        bytes_read = 0
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="paimon-stream-change") as pool:
            try:
                matches = pool.map(partial(_matching_rows, scan, predicate, rows_of), entries)
                for entry, positions in zip(entries, matches, strict=True):
                    name = entry.file.file_name
                    self._known[name] = scan.vectors.get(name), positions
                    bytes_read += entry.file.file_size
                    progress("bytes", bytes_read, bytes_in_all)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _positions(self, scan: Scan, entry: ManifestEntry) -> Positions:
        """The matching rows of a file that was searched, without rows that are deleted by now."""
        name = entry.file.file_name
        vector, positions = self._known[name]
        if len(positions) and scan.vectors.get(name) != vector:
            (deleted,) = deleted_rows(scan, [entry])
            positions = np.setdiff1d(positions, deleted, assume_unique=True)
            self._known[name] = scan.vectors.get(name), positions
        return positions

    def _may_hold(self, found: FoundRows, added: Sequence[ManifestEntry]) -> bool:
        """Whether one of the files that others have added has a row that fulfils the condition. A
        file whose partition and statistics do not exclude that is searched.
        """
        scan = found.scan
        predicate = found.predicate
        if any(entry.file.schema_id > scan.schema.id for entry in added):
            return True  # the change has to be computed with the newer columns
        possible = predicate.possible(known_of(scan, added, predicate))
        entries = tuple(
            entry for entry, is_possible in zip(added, possible, strict=True) if is_possible
        )
        try:
            # While a change is published, no function of the caller runs: its error would leave it
            # open whether the change is published, so the new files would stay as orphans.
            self._search(replace(scan, files=entries, vectors={}), predicate, silent)
        except NotFound:
            return True  # the file has been replaced and removed meanwhile
        return any(len(self._known[entry.file.file_name][1]) for entry in entries)


def _matching_rows(
    scan: Scan, predicate: Predicate, rows_of: RowsOf, entry: ManifestEntry
) -> Positions:
    """The positions of the rows in a file that fulfil the condition and are not deleted, ascending.
    Deleted rows are skipped, because their values may not fit the present types of the columns.
    """
    matching = [np.empty(0, np.int64)]
    try:
        for batch, positions in rows_of(entry):
            matching.append(positions[predicate.positions(batch)])
    except pa.ArrowException as error:
        raise InvalidData(
            f"the condition {predicate.where} cannot be computed for a row of "
            f"{entry.file.file_name}: {str(error).splitlines()[0].rstrip('.')}. Nothing was "
            "changed.",
            file=entry.file.file_name,
        ).of_table(scan.table.location) from None
    return np.concatenate(matching)
