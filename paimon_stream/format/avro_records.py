"""Records of metadata files, whatever schema their writer used (format.md §4.1). Fields are found
by name. Unknown ones are skipped, missing nullable ones are not in the dict. A file without a
required field is refused before it is used.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro

from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.avro_file import AvroBlock, blocks_of, corrupt, zigzag
from paimon_stream.format.json_text import in_words, parse_json
from paimon_stream.format.manifest_rows import PATHS, read_entries

_MOST_SMALL: Final = 16 << 20
_SMALL_PER_BYTE: Final = 16
_SMALL_PER_RECORD: Final = 64
_SMALL_PER_INNER: Final = 16
"""The most bytes of small values in a metadata file are `_MOST_SMALL`, and `_SMALL_PER_BYTE` for
each of its own bytes. Texts and bytes cost nothing, because one of them is read at once. A record
counts as `_SMALL_PER_RECORD` of them, a record in an array as `_SMALL_PER_INNER`.
"""

_MOST_EMPTY: Final = 1
"""The most values without bytes in a record. Paimon writes none."""

Holds: TypeAlias = Callable[[bytes], bool] | None
Blocks: TypeAlias = Callable[[AvroBlock], bool] | None
_STEPS: Final = [one.split(".") for one in PATHS]
_END: Final = zigzag(0)
_WHOLE: Final = "paimon_stream_block"
_RECORDS: Final = "records"
_MOST_TEXT: Final = 1 << 20
"""The most characters in the schema of a metadata file. Java's schema of manifests has 2,300."""
# What fastavro raises on bytes that do not fit their schema.
_BROKEN: Final = (
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    OverflowError,
    MemoryError,
    AttributeError,
)


def read_records(
    data: bytes, path: str, wanted: bytes, version: int
) -> Iterator[Mapping[str, Any]]:
    """The records of all blocks as dicts. `wanted` is the schema to read them as (JSON), `version`
    the value that `_VERSION` must have, `path` is for messages. Only one block is in memory at a
    time. Raises `CorruptMetadata`, `UnknownVersion`, and `UnsupportedFeature` for an unknown codec.
    """
    text, blocks = blocks_of(data, path)
    schemas = _checked_schemas(text, wanted, len(data), path)
    budget = _Budget(len(data), path)
    for block in blocks:
        budget.spend(_SMALL_PER_RECORD * block.records)
        yield from _records(block, schemas, version, budget)


def read_rows(
    data: bytes,
    path: str,
    wanted: bytes,
    version: int,
    *,
    wants: Holds = None,
    of_interest: Blocks = None,
) -> Iterator[tuple[Any, ...]]:
    """The values at `PATHS` of each entry of a manifest, as a generic reader returns them; None for
    a field that the writer did not have. `read_entries` reads blocks whose schema is `wanted`.
    `wants` chooses records by their first value, `of_interest` blocks. Raises what `read_records`
    raises.
    """
    text, blocks = blocks_of(data, path)
    schemas = _checked_schemas(text, wanted, len(data), path)
    budget = _Budget(len(data), path)
    for block in blocks:
        if not block.records or (of_interest is not None and not of_interest(block)):
            continue
        budget.spend(_SMALL_PER_RECORD * block.records)
        rows: Iterable[tuple[Any, ...]] | None = None
        if schemas.exact:
            with suppress(ValueError, IndexError):
                rows = read_entries(block.data, block.records, version, wants, budget.spend)
        if rows is None:
            records = _records(block, schemas, version, budget)
            rows = (tuple([_at(record, names) for names in _STEPS]) for record in records)
            rows = rows if wants is None else (row for row in rows if wants(row[0]))
        yield from rows


class _Budget:
    """The bytes of small values that are left to a file. They bound the time and the memory to read
    it.
    """

    def __init__(self, size: int, path: str) -> None:
        self.size, self.path = size, path
        self._left = _MOST_SMALL + _SMALL_PER_BYTE * size

    def spend(self, amount: int) -> None:
        """Raises `CorruptMetadata` if the file has more than a file of its size may have."""
        self._left -= amount
        if self._left < 0:
            raise self.corrupt("it has more small values than a file of its size can hold")

    def corrupt(self, why: str) -> CorruptMetadata:
        return corrupt(self.path, self.size, why)


def _at(record: Any, names: Sequence[str]) -> Any:
    for name in names:
        record = record.get(name)
    return record


class _Schemas(NamedTuple):
    """The schemas of an array of a file's records, each as `_whole` has it: as they were written,
    and as they are read (None if every field is wanted). `exact` means that the records have the
    wanted schema and no other.
    """

    written: Any
    read: Any
    exact: bool


def _checked_schemas(text: str, wanted: bytes, size: int, path: str) -> _Schemas:
    """The schemas of a file. Raises `CorruptMetadata` if the records cannot be read as `wanted`."""
    if len(text) > _MOST_TEXT:
        raise corrupt(path, size, f"the Avro schema in its header has {len(text):,} characters")
    try:
        found = _schemas_of(text, wanted)
    except (*_BROKEN, *SCHEMA_ERRORS) as why:
        reason = f": {in_words(why)}" if isinstance(why, ValueError) else ""
        raise corrupt(path, size, f"the Avro schema in its header is not valid{reason}") from None
    if isinstance(found, str):
        raise corrupt(path, size, found)
    return found


@lru_cache(maxsize=32)
def _schemas_of(text: str, wanted: bytes) -> _Schemas | str:
    """The schemas of files with this schema; or what is wrong with it, as `_misfit` says. The files
    of a table have few different schemas, and checking one takes longer than reading a small file.
    """
    items, meant = _without(parse_json(text)), json.loads(wanted)
    written = parsed_array(items, _MOST_EMPTY)
    problem = _misfit(meant, written["items"])
    if problem:
        return problem
    fewer = _projected(items, meant)  # no memory is spent on fields that are not wanted
    read = None if fewer == items else _whole(fewer)
    exact = written == parsed_array(_without(meant), _MOST_EMPTY)
    return _Schemas(_whole(items), read, exact)


def _whole(items: Any) -> Any:
    """The parsed schema of a record whose only field is an array of such records. It has the bytes
    of that array. fastavro parses the schema of an array again in each call, which takes as long as
    reading a small manifest list, and that of a record only once.
    """
    parsed_array(items, _MOST_EMPTY)
    field = {"name": _RECORDS, "type": {"type": "array", "items": items}}
    return fastavro.parse_schema({"type": "record", "name": _WHOLE, "fields": [field]})


def _records(
    block: AvroBlock, schemas: _Schemas, version: int, budget: _Budget
) -> Iterator[Mapping[str, Any]]:
    """Reads a block in one call, as an Avro array: it only lacks the count before the items and the
    end mark. How many of its bytes are small values is known only afterwards, so the last block may
    have more than are left.
    """
    count, packed = block
    if not count:
        return
    source = BytesIO(b"".join((zigzag(count), packed, _END)))
    try:
        whole: Any = fastavro.schemaless_reader(source, schemas.written, schemas.read)
        records = whole[_RECORDS]
    except _BROKEN:
        raise budget.corrupt("its records do not fit the schema in its header") from None
    if not isinstance(records, list) or len(records) != count or source.read(1):
        raise budget.corrupt(f"a block does not hold the {count} records it claims")
    budget.spend(max(0, len(packed) - sum(_at_once(one, budget) for one in records)))
    for record in records:
        if not isinstance(record, dict):
            raise budget.corrupt("it does not hold records")
        if record["_VERSION"] != version:
            text = f"{budget.path} is of version {record['_VERSION']}; this release reads version {version}. Rewrite"
            raise UnknownVersion(
                f"{text} the table with a newer Paimon, or upgrade this package.", path=budget.path
            )
        yield record


def _at_once(value: Any, budget: _Budget) -> int:
    """How many bytes of a value are texts and bytes. Records in it are spent as such."""
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum([_at_once(one, budget) for one in value.values()])
    if isinstance(value, list) and value and not isinstance(value[0], (int, type(None))):
        if isinstance(value[0], dict):
            budget.spend(_SMALL_PER_INNER * len(value))
        return sum([_at_once(one, budget) for one in value])
    return 0


def _projected(node: Any, wanted: Any) -> Any:
    """The schema without the fields that are not wanted."""
    wanted = wanted[1] if isinstance(wanted, list) else wanted
    if isinstance(node, list):
        return [one if one == "null" else _projected(one, wanted) for one in node]
    if not isinstance(node, dict) or not isinstance(wanted, dict):
        return node
    if "items" in node and "items" in wanted:
        return {**node, "items": _projected(node["items"], wanted["items"])}
    if "fields" not in node or "fields" not in wanted:
        return node
    types = {one["name"]: one["type"] for one in wanted["fields"]}
    kept = [one for one in node["fields"] if one["name"] in types]
    return {
        **node,
        "fields": [{**one, "type": _projected(one["type"], types[one["name"]])} for one in kept],
    }


def _misfit(wanted: Any, found: Any) -> str | None:
    """What is wrong with a writer schema; None if its records can be read as `wanted`."""
    if not isinstance(found, dict) or found.get("type") != "record":
        return "it does not hold records"
    present = {one["name"]: one["type"] for one in found["fields"]}
    if len(present) < len(found["fields"]):
        return "one of its fields comes twice"
    for one in wanted["fields"]:
        name, type_ = one["name"], one["type"]
        nullable = isinstance(type_, list)
        if name not in present:
            if nullable:
                continue
            return f"its records have no {name}"
        branches = present[name] if isinstance(present[name], list) else [present[name]]
        values = [branch for branch in branches if branch != "null"]
        if len(values) != 1 or (len(branches) > 1 and not nullable):
            return f"its field {name} is of another type"
        core = type_[1] if nullable else type_
        if isinstance(core, dict) and core["type"] == "record":
            inner = _misfit(core, values[0])
            if inner:
                return f"in {name}, {inner}"
        elif _family(core) != _family(values[0]):
            return f"its field {name} is of another type"
    return None


def _family(type_: Any) -> Any:
    """One name for all types that read as the same Python values."""
    if isinstance(type_, dict):
        if type_["type"] == "array":
            items = type_["items"]
            branches = items if isinstance(items, list) else [items]
            return "array", tuple(sorted({str(_family(one)) for one in branches if one != "null"}))
        return _family(type_["type"])
    return "long" if type_ == "int" else type_


# -- schemas of any file
# ------------------------------------------------------------------------------
#
# A decoder follows the schema of the file, so a crafted schema can let a few bytes stand for any
# number of values. Such schemas are refused before anything is decoded.

SCHEMA_ERRORS: Final = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType)
"""What fastavro raises on a schema that is not valid, besides Python's own errors."""

_MOST_EMPTY_IN_DATA: Final = 16
"""The most values without bytes in a row of data. Paimon writes none, except for a ROW without
members.
"""

_NAMED: Final = ("record", "error", "fixed", "enum")


def parsed_array(items: Any, most_empty: int = _MOST_EMPTY_IN_DATA) -> Any:
    """The parsed schema of an array of such records. `most_empty` is the most values without bytes
    in one. Raises `ValueError` for a type that holds itself (its values could nest without end),
    and for an array of values or many members without bytes (nothing but their number says how many
    there are). Raises one of `SCHEMA_ERRORS`, or an error of Python, for an invalid schema.
    """
    parsed = fastavro.parse_schema({"type": "array", "items": items})
    _weigh(parsed["items"], {"null": (True, 1)}, most_empty)
    return parsed


def _without(node: Any) -> Any:
    """The schema without logical types: values are wanted as they are stored."""
    if isinstance(node, dict):
        return {key: _without(value) for key, value in node.items() if key != "logicalType"}
    return [_without(one) for one in node] if isinstance(node, list) else node


def _weigh(
    node: Any, known: dict[str, tuple[bool, int] | None], most_empty: int
) -> tuple[bool, int]:
    """Whether all values of a type have no bytes, and how many values without bytes one value of it
    holds. `known` says so of named types; None for those that are not finished.
    """
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
    empty = (
        node["size"] == 0 if kind == "fixed" else kind != "enum" and all(one for one, _ in parts)
    )
    inside = sum(count for _, count in parts) + empty
    if inside > most_empty:
        raise ValueError(f"more than {most_empty} of its values have no bytes")
    known[node["name"]] = empty, inside
    return empty, inside
