"""Listings of things of one kind. Each column is declared once, for the JSON and for the table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: a fact about each listed thing.

    `key` is the column's name in the JSON, and `value` returns the JSON value. `title` is the name for people, by
    default the key. `text` returns what people see, by default the value. A `number` is aligned to the right and has
    commas. An `ident` is a number that names something, such as a snapshot, and has no commas. `prose` may be broken
    into lines. An `extra` column is always in the JSON, but in the table only if `--columns` names it.
    """

    key: str
    value: Callable[[T], Any]
    title: str = ""
    text: Callable[[T], object] | None = None
    number: bool = False
    ident: bool = False
    prose: bool = False
    extra: bool = False

    @property
    def name(self) -> str:
        """The name for people, as a title and for `--columns`."""
        return self.title or self.key.replace("_", " ")

    def cell(self, one: T) -> object:
        """What people see in this column for one thing."""
        shown = self.value(one) if self.text is None else self.text(one)
        return str(shown) if self.ident and shown is not None else shown


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Things with their columns. `empty` is printed if there are none."""

    columns: Sequence[Column[T]]
    rows: Sequence[T]
    empty: str


def json_of(columns: Sequence[Column[T]], one: T) -> dict[str, Any]:
    """The JSON of one thing: all columns, including those not shown to people."""
    return {column.key: column.value(one) for column in columns}


def choose(columns: Sequence[Column[T]], names: Sequence[str] | None = None) -> tuple[Column[T], ...]:
    """The columns to show: those with these names, in this order, or without names all that are not extra. A
    column has two names, its title and its key. The name `all` stands for all columns. Raises a usage error
    for an unknown name."""
    if names is None:
        return tuple(column for column in columns if not column.extra)
    known: Mapping[str, Column[T]] = {_folded(name): column for column in columns for name in (column.key, column.name)}
    chosen: list[Column[T]] = []
    for name in names:
        if _folded(name) == "all":
            chosen += columns
        elif _folded(name) in known:
            chosen.append(known[_folded(name)])
        else:
            there = ", ".join(column.name.replace(" ", "_") for column in columns)
            raise click.UsageError(f"There is no column {name.strip()!r}. The columns are: {there}.")
    return tuple(dict.fromkeys(chosen))


def _folded(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
