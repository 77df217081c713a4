"""A merge as its author describes it, with the names of deltalake. It is data: nothing is read or
written, and no table is known yet.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from paimon_stream.change.merge_clauses import Action, Clause, MergeWords, When, check_words
from paimon_stream.errors import InvalidOption, UnsupportedFeature

_M = TypeVar("_M", bound="MergeMethods")


class MergeMethods(ABC):
    """The methods that state the clauses of a merge. `Merge` and `TableMerge` have them."""

    __slots__ = ()

    @abstractmethod
    def _with(self: _M, clause: Clause) -> _M:
        """The merge with one more clause."""

    def when_matched_update(
        self: _M,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> _M:
        """Updates rows that match a row of the source.

        Args:
            updates: the new value of each column that changes.
            predicate: the condition; None for all matches.
        """
        return self._with_clause(When.MATCHED, Action.UPDATE, _checked(updates), predicate)

    def when_matched_update_all(
        self: _M,
        predicate: Any = None,
        except_cols: Iterable[str] | None = None,
    ) -> _M:
        """Gives rows that match a row of the source all values of that row. Source and table must
        have the same columns, apart from `except_cols`.

        Args:
            predicate: the condition; None for all matches.
            except_cols: columns that keep their values.
        """
        return self._with_clause(When.MATCHED, Action.UPDATE, None, predicate, except_cols)

    def when_matched_delete(
        self: _M,
        predicate: Any = None,
    ) -> _M:
        """Deletes rows that match a row of the source.

        Args:
            predicate: the condition; None for all matches.
        """
        return self._with_clause(When.MATCHED, Action.DELETE, None, predicate)

    def when_not_matched_insert(
        self: _M,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> _M:
        """Inserts a row for each row of the source that matches no row of the table.

        Args:
            updates: the values of the new row. Columns that are not named get their default or
                NULL.
            predicate: the condition on the row of the source; None for all.
        """
        return self._with_clause(When.NOT_MATCHED, Action.INSERT, _checked(updates), predicate)

    def when_not_matched_insert_all(
        self: _M,
        predicate: Any = None,
        except_cols: Iterable[str] | None = None,
    ) -> _M:
        """Inserts the rows of the source that match no row of the table. Source and table must have
        the same columns, apart from `except_cols`.

        Args:
            predicate: the condition on the row of the source; None for all.
            except_cols: columns that get their default or NULL.
        """
        return self._with_clause(When.NOT_MATCHED, Action.INSERT, None, predicate, except_cols)

    def when_not_matched_by_source_update(
        self: _M,
        updates: Mapping[str, Any],
        predicate: Any = None,
    ) -> _M:
        """Updates rows of the table that match no row of the source. The whole table is read.

        Args:
            updates: the new value of each column that changes.
            predicate: the condition on the row of the table; None for all.
        """
        when = When.NOT_MATCHED_BY_SOURCE
        return self._with_clause(when, Action.UPDATE, _checked(updates), predicate)

    def when_not_matched_by_source_delete(
        self: _M,
        predicate: Any = None,
    ) -> _M:
        """Deletes rows of the table that match no row of the source. The whole table is read.

        Args:
            predicate: the condition on the row of the table; None for all.
        """
        return self._with_clause(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, None, predicate)

    def _with_clause(
        self: _M,
        when: When,
        action: Action,
        updates: Mapping[str, Any] | None,
        predicate: Any,
        except_cols: Iterable[str] | None = None,
    ) -> _M:
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
        return self._with(clause)


@dataclass(frozen=True, slots=True)
class Merge(MergeMethods, MergeWords):
    """How the rows of a source are merged into a table: `PaimonSink(location, merge=Merge(…))`
    merges each batch of a stream.

        Merge(on=["id"]).when_matched_update_all().when_not_matched_insert_all()

    Each method whose name begins with `when_` returns a merge with one more clause, and leaves this
    one as it is. For each row, the clauses are tried in the order in which they were added. The
    first one whose predicate holds decides; NULL does not hold. `updates` and `predicate` are SQL
    text, in which columns have their alias before them (`source.amount + target.amount`), or
    expressions of Arrow, which name columns `source.…` and `target.…`
    (`pc.field("source.amount")`).

    Args:
        on: the columns whose values are equal in a match, or a condition as SQL text, such as
            `"source.id = target.id AND target.day >= '2026-01-01'"`. It needs at least one equality
            between the source and the table. `<=>` also lets NULL match NULL.
        source_alias: the name of the source in SQL texts.
        target_alias: the name of the table in SQL texts.
        clauses: the clauses; empty, because the methods add them.

    Raises:
        InvalidOption: an argument has a wrong type.
    """

    def __post_init__(self) -> None:
        on = self.on
        if not isinstance(on, str):
            is_list = isinstance(on, Sequence) and not isinstance(on, bytes)
            if not is_list or not on or not all(isinstance(name, str) for name in on):
                raise InvalidOption(
                    f"on is {on!r}. Give the names of the columns whose values match, such as ['id'], or a condition as "
                    "a text, such as 'source.id = target.id'.",
                    option="on",
                )
            object.__setattr__(self, "on", tuple(on))

    def check(self) -> None:
        """Checks what needs no table. Raises `InvalidOption` and `UnsupportedFeature` if there is no
        clause, if one can never hold, if the aliases are no names, or if a clause about rows of the
        table without a match has no predicate.
        """
        check_words(self)
        for clause in self.clauses:
            if clause.when is When.NOT_MATCHED_BY_SOURCE and clause.predicate is None:
                raise UnsupportedFeature(
                    f"{clause.name} has no predicate. A batch has a part of the stream's rows, so nearly all rows of the "
                    "table have no match in it, and each batch would change them. Give a predicate that limits the "
                    "clause to partitions of the table, or merge the whole source with PaimonTable.merge.",
                    option=clause.name,
                )

    def _with(self, clause: Clause) -> "Merge":
        return replace(self, clauses=(*self.clauses, clause))


def _checked(updates: Any) -> Mapping[str, Any]:
    """The values by column. Raises `InvalidOption` for anything else."""
    if not isinstance(updates, Mapping) or not updates:
        raise InvalidOption(
            f"updates is {updates!r}. Give a value for each column, such as {{'amount': 'source.amount'}}.",
            option="updates",
        )
    return dict(updates)
