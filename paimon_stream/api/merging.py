"""`PaimonTable.merge`: a merge, described clause by clause with the names of deltalake."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from paimon_stream.change.merge_clauses import Action, Clause, MergeWords, When
from paimon_stream.change.merge_distant import DistantSource, merge_source
from paimon_stream.change.merge_into import MergeReport
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.errors import InvalidOption
from paimon_stream.reports import Progress, silent
from paimon_stream.table.table import Table


class TableMerge:
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

    def when_matched_update(
        self,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> "TableMerge":
        """Updates rows that match a row of the source.

        Args:
            updates: the new value of each column that changes.
            predicate: the condition; None for all matches.
        """
        return self._with(When.MATCHED, Action.UPDATE, _checked(updates), predicate)

    def when_matched_update_all(
        self,
        predicate: Any = None,
        except_cols: Iterable[str] | None = None,
    ) -> "TableMerge":
        """Gives rows that match a row of the source all values of that row. Source and table must
        have the same columns, apart from `except_cols`.

        Args:
            predicate: the condition; None for all matches.
            except_cols: columns that keep their values.
        """
        return self._with(When.MATCHED, Action.UPDATE, None, predicate, except_cols)

    def when_matched_delete(
        self,
        predicate: Any = None,
    ) -> "TableMerge":
        """Deletes rows that match a row of the source.

        Args:
            predicate: the condition; None for all matches.
        """
        return self._with(When.MATCHED, Action.DELETE, None, predicate)

    def when_not_matched_insert(
        self,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> "TableMerge":
        """Inserts a row for each row of the source that matches no row of the table.

        Args:
            updates: the values of the new row. Columns that are not named get their default or
                NULL.
            predicate: the condition on the row of the source; None for all.
        """
        return self._with(When.NOT_MATCHED, Action.INSERT, _checked(updates), predicate)

    def when_not_matched_insert_all(
        self,
        predicate: Any = None,
        except_cols: Iterable[str] | None = None,
    ) -> "TableMerge":
        """Inserts the rows of the source that match no row of the table. Source and table must have
        the same columns, apart from `except_cols`.

        Args:
            predicate: the condition on the row of the source; None for all.
            except_cols: columns that get their default or NULL.
        """
        return self._with(When.NOT_MATCHED, Action.INSERT, None, predicate, except_cols)

    def when_not_matched_by_source_update(
        self,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> "TableMerge":
        """Updates rows of the table that match no row of the source. The whole table is read.

        Args:
            updates: the new value of each column that changes.
            predicate: the condition on the row of the table; None for all.
        """
        when = When.NOT_MATCHED_BY_SOURCE
        return self._with(when, Action.UPDATE, _checked(updates), predicate)

    def when_not_matched_by_source_delete(
        self,
        predicate: Any = None,
    ) -> "TableMerge":
        """Deletes rows of the table that match no row of the source. The whole table is read.

        Args:
            predicate: the condition on the row of the table; None for all.
        """
        return self._with(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, None, predicate)

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

    def _with(
        self,
        when: When,
        action: Action,
        updates: Mapping[str, Any] | None,
        predicate: Any,
        except_cols: Iterable[str] | None = None,
    ) -> "TableMerge":
        if isinstance(except_cols, str):
            raise InvalidOption(
                f"except_cols is {except_cols!r}. Give a list of names.", option="except_cols"
            )
        clause = Clause(
            when=when,
            action=action,
            updates=updates,
            predicate=predicate,
            except_cols=tuple(except_cols or ()),
        )
        self._words = replace(self._words, clauses=(*self._words.clauses, clause))
        return self


def _checked(updates: Any) -> Mapping[str, Any]:
    """The values by column. Raises `InvalidOption` for anything else."""
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidOption(
            f"updates is {updates!r}. Give a value for each column, such as {{'amount': 'source.amount'}}.",
            option="updates",
        )
    return updates
