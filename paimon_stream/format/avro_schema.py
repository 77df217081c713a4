"""Schemas of Avro files, which say how the file's own bytes are decoded (format.md §4.1).

A decoder follows the schema of the file, so a crafted schema can let a few bytes stand for any number of
values. Such schemas are refused before anything is decoded.
"""

from typing import Any, Final

import fastavro

from paimon_stream.format.json_text import parse_json

SCHEMA_ERRORS: Final = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType)
"""What fastavro raises on a schema that is not valid, besides Python's own errors."""

_MOST_EMPTY: Final = 16
"""The most values without bytes in a row of data. Paimon writes none, except for a ROW without members."""

_NAMED: Final = ("record", "error", "fixed", "enum")


def parsed_array(items: Any, most_empty: int = _MOST_EMPTY) -> Any:
    """The parsed schema of an array of such records. `most_empty` is the most values without bytes in one. Raises
    `ValueError` for a type that holds itself, because its values could nest without end, and for an array of values or
    many members without bytes, because nothing but their number says how many there are. Raises one of `SCHEMA_ERRORS`,
    or an error of Python, for a schema that is not valid."""
    parsed = fastavro.parse_schema({"type": "array", "items": items})
    _weigh(parsed["items"], {"null": (True, 1)}, most_empty)
    return parsed


def without_logical_types(text: str) -> Any:
    """The schema with this text, without logical types: values are wanted as they are stored. Raises `ValueError`."""
    return _without(parse_json(text))


def _without(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without(value) for key, value in node.items() if key != "logicalType"}
    if isinstance(node, list):
        return [_without(one) for one in node]
    return node


def _weigh(node: Any, known: dict[str, tuple[bool, int] | None], most_empty: int) -> tuple[bool, int]:
    """Whether all values of a type have no bytes, and how many values without bytes one value of it holds.
    `known` says so of named types; None for those that are not finished."""
    if isinstance(node, str):
        found = known.get(node, (False, 0))
        if found is None:
            raise ValueError(f"the type {node[:80]!r} holds itself")
        return found
    if isinstance(node, list):  # a union has a byte that says which of its types comes
        return False, sum(_weigh(one, known, most_empty)[1] for one in node if one != "null")
    kind = node["type"]
    if kind in ("array", "map"):
        empty, inside = _weigh(node["items" if kind == "array" else "values"], known, most_empty)
        if empty and kind == "array":
            raise ValueError("an array in it has values without bytes")
        return False, inside
    if kind not in _NAMED:
        return _weigh(kind, known, most_empty)
    known[node["name"]] = None
    parts = [_weigh(one["type"], known, most_empty) for one in node.get("fields", ())]
    empty = node["size"] == 0 if kind == "fixed" else kind != "enum" and all(one for one, _ in parts)
    inside = sum(count for _, count in parts) + empty
    if inside > most_empty:
        raise ValueError(f"more than {most_empty} of its values have no bytes")
    known[node["name"]] = empty, inside
    return empty, inside
