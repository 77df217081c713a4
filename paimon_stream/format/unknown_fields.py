"""The fields of metadata files that this release does not know. Newer writers add fields to each
kind of file. A decoded object keeps those that have a value, as `unknown`, and the code that
encodes it again writes them as they were (format.md §1.5).

Invariant: an unknown field is written again with its value, or the action that would lose it is
    refused by name. Fields that are null mean nothing, and may be lost.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

UnknownMembers: TypeAlias = tuple[tuple[str, str], ...]
"""The unknown members of a JSON object: the name of each, and its value as JSON."""


def unknown_members(node: Mapping[str, Any], known: Collection[str]) -> UnknownMembers:
    """The members of a JSON object that have a value and are not `known`, in the order of the file.
    Raises `ValueError` for a number that is too large for a double, because it could not be written
    again.
    """
    return tuple(
        [
            (name, json.dumps(value, ensure_ascii=False, allow_nan=False))
            for name, value in node.items()
            if name not in known and value is not None
        ]
    )


def members(unknown: UnknownMembers) -> dict[str, Any]:
    """The members of a JSON object, from what `unknown_members` has returned."""
    return {name: json.loads(value) for name, value in unknown}
