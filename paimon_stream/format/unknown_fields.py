"""Keeps the fields of metadata files that this release does not know. Newer writers add fields to
each kind of file. A decoded object keeps the unknown fields that have a value, as `unknown`. The
code that encodes the object again writes these fields unchanged (format.md §1.5).

Invariant: an unknown field is written again with its value, or the action that would lose it is
refused by name. Fields that are null mean nothing, and may be lost.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

UnknownMembers: TypeAlias = tuple[tuple[str, str], ...]
"""The unknown members of a JSON object: the name of each, and its value as JSON."""


def unknown_members(node: Mapping[str, Any], known: Collection[str]) -> UnknownMembers:
    """The members of a JSON object that have a value and are not `known`, in the order of the file.
    Raises `ValueError` for a number that is too large for a double, because such a number could not
    be written again.
    """
    return tuple(
        [
            (name, json.dumps(value, ensure_ascii=False, allow_nan=False))
            for name, value in node.items()
            if name not in known and value is not None
        ]
    )


def members(unknown: UnknownMembers) -> dict[str, Any]:
    """The members of a JSON object, as values. `unknown_members` has returned them."""
    return {name: json.loads(value) for name, value in unknown}


def texts_in(unknown: UnknownMembers) -> Iterator[str]:
    """All texts in some members of a JSON object, including the keys of objects. Each text may be
    the name of a file.
    """
    waiting = list(members(unknown).values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


class UnknownField(NamedTuple):
    """An unknown field of a record in an Avro metadata file, with its value.

    Attributes:
        path: the names from the record down to the field. In an array, the position comes after the
            name of the array.
        type: the Avro type of the field in JSON: a union whose first branch is null.
        data: the value of the field, encoded as that type.
    """

    path: tuple[str | int, ...]
    type: str
    data: bytes

    @property
    def place(self) -> tuple[str, ...]:
        """The path of the field without positions in arrays. It is the place of the field in the
        schema.
        """
        return tuple([name for name in self.path if isinstance(name, str)])


UnknownFields: TypeAlias = tuple[UnknownField, ...]
"""The unknown fields of one record, sorted by their paths, so that equal ones compare equal."""


def names_of(unknown: UnknownFields) -> str:
    """The names of the fields for people, such as `_FILE._WRITE_COLS_SEQUENCES`, each once and
    sorted.
    """
    return ", ".join(sorted({".".join(field.place) for field in unknown}))
