"""`PaimonTable.merge`: a merge, described clause by clause with the names of deltalake."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from paimon_stream.change.merge import MergeMethods
from paimon_stream.change.merge_clauses import Clause, MergeWords
from paimon_stream.change.merge_distant import DistantSource, merge_source
from paimon_stream.change.merge_into import MergeReport
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.errors import InvalidOption
from paimon_stream.reports import Progress, silent
from paimon_stream.table.table import Table


class TableMerge(MergeMethods):
    """A merge of the rows of a source into a table. Each method whose name begins with `when_` adds
    a clause and returns this object. `execute` carries the merge out.

    For each row, the clauses are tried in the order in which they were added. The first one whose
    predicate holds decides; NULL does not hold. `updates` and `predicate` are SQL text, in which
    columns have their alias before them (`source.amount + target.amount`), or expressions of Arrow,
    which name columns `source.…` and `target.…` (`pc.field("source.amount")`).
    """

    def __init__(
        self,
        load: Callable[[], Table],
        read_source: Callable[[], pa.Table | DistantSource],
        words: MergeWords,
        after_commit: AfterPublishing,
    ) -> None:
        self._load = load
        self._read_source = read_source
        self._words = words
        self._after_commit = after_commit
        self._source: pa.Table | DistantSource | None = None

    def execute(
        self,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> MergeReport:
        """Carries the merge out, in one snapshot or not at all. The source is read once, also if
        others commit meanwhile and the merge is computed anew.

        Args:
            dry_run: write nothing, and count the rows.
            progress: is called with what is done.

        Raises:
            InvalidOption: for a clause, a predicate or a value that does not fit the columns.
            UnsupportedFeature: for a table of another kind, for subqueries and functions that are
                not computed here, and if `on` has no equality.
            AmbiguousMerge: if several rows of the source would change the same row.
            InvalidData: for a value that cannot be computed, or that its column cannot have.
            ChangedMeanwhile: if others kept changing the same rows.
            PaimonStreamError: the errors of reading and of `append`.
        """
        if not isinstance(dry_run, bool):
            raise InvalidOption(f"dry_run is {dry_run!r}. Give True or False.", option="dry_run")
        if self._source is None:
            self._source = self._read_source()
        return merge_source(
            self._load,
            self._source,
            self._words,
            dry_run=dry_run,
            progress=progress,
            after_commit=self._after_commit,
        )

    def _with(self, clause: Clause) -> "TableMerge":
        self._words = replace(self._words, clauses=(*self._words.clauses, clause))
        return self
