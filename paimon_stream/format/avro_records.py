"""Reads the records of metadata files as dicts, with any schema that their writer may have used
(format.md §4.1). Fields are found by name. Unknown fields are not in the dict, but are returned
with it (`format/avro_unknown.py`). Missing nullable fields are not in the dict. A file without a
required field is refused before any record is used.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro

from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.avro_file import AvroBlock, blocks_of, corrupt, zigzag
from paimon_stream.format.avro_unknown import LOGICAL, Finder, Rest
from paimon_stream.format.json_text import in_words, parse_json
from paimon_stream.format.manifest_rows import PATHS, read_entries
from paimon_stream.format.unknown_fields import UnknownFields

_MOST_SMALL: Final = 16 << 20
_SMALL_PER_BYTE: Final = 16
_SMALL_PER_RECORD: Final = 64
_SMALL_PER_INNER: Final = 16
"""The small values of a metadata file have at most `_MOST_SMALL` bytes, and `_SMALL_PER_BYTE` more
for each byte of the file. A text costs nothing, and neither do bytes, because each is read in one
step. A record counts as `_SMALL_PER_RECORD` bytes, a record in an array as `_SMALL_PER_INNER`.
"""

_MOST_EMPTY: Final = 1
"""The most values without bytes in a record. Paimon writes none."""

Holds: TypeAlias = Callable[[bytes], bool] | None
"""Whether the entries of a partition are wanted; None for all."""
Blocks: TypeAlias = Callable[[AvroBlock], bool] | None
"""Whether a block is decoded; None for all."""
_FIELD_NAMES: Final = [path.split(".") for path in PATHS]
"""For each path, the names of the fields from the record down to the value."""

_LAST: Final = "_FILE"
"""The last field of an entry, which is a record. Newer writers add their fields to its end."""

_END: Final = zigzag(0)
_BLOCK: Final = "paimon_stream_block"
_RECORDS: Final = "records"
_MOST_CHARACTERS: Final = 1 << 20
"""The most characters in the schema of a metadata file. Java's schema of manifests has 2,300."""

# The errors that fastavro raises for bytes that do not fit their schema.
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
    """The records of all blocks as dicts. Only one block is in memory at a time.

    Args:
        data: the bytes of the file.
        path: the file, for messages.
        wanted: the schema to read the records as, in JSON.
        version: the value that `_VERSION` must have.

    Raises:
        CorruptMetadata: the file cannot be read.
        UnknownVersion: a record has another version.
        UnsupportedFeature: the codec is unknown.
    """
    for block, schemas, budget in _blocks(data, path, wanted):
        yield from _records(block, schemas, version, budget)


def read_whole_records(
    data: bytes, path: str, wanted: bytes, version: int
) -> Iterator[tuple[Mapping[str, Any], UnknownFields]]:
    """The records as `read_records` returns them, each with its unknown fields."""
    for block, schemas, budget in _blocks(data, path, wanted):
        records = _records(block, schemas, version, budget)
        yield from zip(records, _unknown(block, schemas, budget), strict=True)


def _blocks(
    data: bytes, path: str, wanted: bytes
) -> Iterator[tuple[AvroBlock, "_Schemas", "_Budget"]]:
    """The blocks of a file, each with the schemas and the budget of the file."""
    schema, blocks = blocks_of(data, path)
    schemas = _checked_schemas(schema, wanted, len(data), path)
    budget = _Budget(len(data), path)
    for block in blocks:
        budget.spend(_SMALL_PER_RECORD * block.records)
        yield block, schemas, budget


def read_rows(
    data: bytes,
    path: str,
    wanted: bytes,
    version: int,
    *,
    wants: Holds = None,
    of_interest: Blocks = None,
) -> Iterator[tuple[Any, ...]]:
    """The values at `PATHS` of each entry of a manifest. They are the same as those of a generic
    reader. A field that the file lacks is None. If the file's schema has unknown fields, each row
    ends with the `UnknownFields` of its entry.

    Args:
        data: the bytes of the manifest.
        path: the manifest, for messages.
        wanted: the schema to read the entries as, in JSON.
        version: the value that `_VERSION` must have.
        wants: says of a partition whether its entries are returned; None for all.
        of_interest: says of a block whether it is read; None for all.

    Raises what `read_records` raises.
    """
    schema, blocks = blocks_of(data, path)
    schemas = _checked_schemas(schema, wanted, len(data), path)
    budget = _Budget(len(data), path)
    for block in blocks:
        is_wanted = of_interest is None or of_interest(block)
        if not block.records or not is_wanted:
            continue
        budget.spend(_SMALL_PER_RECORD * block.records)
        rows: Iterable[tuple[Any, ...]] | None = None
        if schemas.exact:
            rows = _exact_rows(block, schemas.rest, version, budget, wants)
        if rows is None:
            rows = _generic_rows(block, schemas, version, budget, wants)
        yield from rows


def _exact_rows(
    block: AvroBlock, rest: Rest | None, version: int, budget: "_Budget", wants: Holds
) -> list[tuple[Any, ...]] | None:
    """The rows of a block whose records begin with the bytes that records of the wanted schema
    have. None if the generic reader must read the block.
    """
    skip = None if rest is None else rest.skip
    try:
        rows = read_entries(block.data, block.records, version, wants, budget.spend, skip)
        return rows if rest is None else _with_rest(rows, rest)
    except (ValueError, IndexError):
        return None


def _with_rest(rows: Iterable[tuple[Any, ...]], rest: Rest) -> list[tuple[Any, ...]]:
    """The rows, in which the bytes at the end are replaced by the unknown fields that they contain.
    Raises `ValueError` or `IndexError` if the bytes do not contain such fields.
    """
    unknown: dict[bytes, UnknownFields] = {}
    with_unknown = []
    for row in rows:
        data = row[-1]
        if data not in unknown:
            unknown[data] = rest.unknown(data)
        with_unknown.append((*row[:-1], unknown[data]))
    return with_unknown


def _generic_rows(
    block: AvroBlock, schemas: "_Schemas", version: int, budget: "_Budget", wants: Holds
) -> Iterator[tuple[Any, ...]]:
    """The rows of the wanted records of a block, in the form that `read_rows` returns."""
    records = _records(block, schemas, version, budget)
    for record, unknown in zip(records, _unknown(block, schemas, budget), strict=True):
        row = tuple([_value_at(record, names) for names in _FIELD_NAMES])
        if wants is None or wants(row[0]):
            yield row if schemas.finder is None else (*row, unknown)


def _unknown(block: AvroBlock, schemas: "_Schemas", budget: "_Budget") -> Iterable[UnknownFields]:
    """The unknown fields of each record of a block. The caller has read the records, so the block
    is known to be readable. The fields of all records are searched when the first ones are asked
    for.
    """
    if schemas.finder is None:
        yield from repeat((), block.records)
        return
    try:
        of_records = schemas.finder.unknown(block.data, block.records)
    except (ValueError, IndexError):
        raise budget.corrupt("its records do not fit the schema in its header") from None
    budget.spend(sum([len(field.data) for unknown in of_records for field in unknown]))
    yield from of_records


class _Budget:
    """Counts how many more bytes of small values a file may have. The limit bounds the time and the
    memory that reading the file can take.
    """

    def __init__(self, size: int, path: str) -> None:
        self.size = size
        self.path = path
        self._remaining = _MOST_SMALL + _SMALL_PER_BYTE * size

    def spend(self, amount: int) -> None:
        """Counts bytes of small values. Raises `CorruptMetadata` if the file has more such bytes
        than a file of its size may have.
        """
        self._remaining -= amount
        if self._remaining < 0:
            raise self.corrupt("it has more small values than a file of its size can hold")

    def corrupt(self, reason: str) -> CorruptMetadata:
        return corrupt(self.path, self.size, reason)


def _value_at(record: Any, names: Sequence[str]) -> Any:
    """The value inside a record to which a path of field names leads."""
    value = record
    for name in names:
        value = value.get(name)
    return value


class _Schemas(NamedTuple):
    """The schemas of an array of a file's records, each in the form that `_record_of_array` gives.

    Attributes:
        written: the schema that the writer has put into the file.
        read: the schema without the fields that are not wanted; None if every field is wanted.
        exact: whether the records begin with the bytes that records of the wanted schema have.
        rest: finds the unknown fields that follow those bytes; None if there are none.
        finder: finds the unknown fields at any place; None if there are none.
    """

    written: Any
    read: Any
    exact: bool
    rest: Rest | None
    finder: Finder | None


def _checked_schemas(schema: str, wanted: bytes, size: int, path: str) -> _Schemas:
    """The schemas of a file. Raises `CorruptMetadata` if the records cannot be read as `wanted`."""
    if len(schema) > _MOST_CHARACTERS:
        raise corrupt(path, size, f"the Avro schema in its header has {len(schema):,} characters")
    try:
        schemas = _schemas_of(schema, wanted)
    except ValueError as error:
        raise corrupt(
            path, size, f"the Avro schema in its header is not valid: {in_words(error)}"
        ) from None
    except (*_BROKEN, *SCHEMA_ERRORS):
        raise corrupt(path, size, "the Avro schema in its header is not valid") from None
    if isinstance(schemas, str):
        raise corrupt(path, size, schemas)
    return schemas


@lru_cache(maxsize=32)
def _schemas_of(schema: str, wanted: bytes) -> _Schemas | str:
    """The `_Schemas` of files whose header has this schema, or a text that says what is wrong with
    the schema (`_misfit`). Results are cached, because the files of a table have few different
    schemas, and to check a schema takes longer than to read a small file.
    """
    written_record = _without_logical_types(parse_json(schema))
    wanted_record = json.loads(wanted)
    written = parsed_array(written_record, _MOST_EMPTY)
    problem = _misfit(wanted_record, written["items"])
    if problem:
        return problem
    # Without this, memory would be spent on fields that are not wanted.
    projected = _projected(written_record, wanted_record)
    read = None if projected == written_record else _record_of_array(projected)
    finder = Finder(written["items"], wanted_record)
    behind = finder.schema.behind(wanted_record, _LAST)
    rest = None
    if behind is not None and any(part.fields for part in behind):
        rest = finder.rest(behind)
    return _Schemas(
        written=_record_of_array(written_record),
        read=read,
        exact=behind is not None,
        rest=rest,
        finder=finder if finder.finds else None,
    )


def _record_of_array(record: Any) -> Any:
    """The parsed schema of a record whose only field is an array of the given records. This record
    has the same bytes as the array. fastavro parses the schema of an array again in each call,
    which takes as long as reading a small manifest list. It parses the schema of a record only
    once.
    """
    parsed_array(record, _MOST_EMPTY)  # raises for a schema that must not be used
    field = {"name": _RECORDS, "type": {"type": "array", "items": record}}
    return fastavro.parse_schema({"type": "record", "name": _BLOCK, "fields": [field]})


def _records(
    block: AvroBlock, schemas: _Schemas, version: int, budget: _Budget
) -> Iterator[Mapping[str, Any]]:
    """Reads a block in one call, as an Avro array. Compared with an array, a block only lacks the
    count before the items and the mark at the end. The bytes of small values can be counted only
    after a block was read, so the last block may exceed the budget before it is refused.
    """
    count, packed = block
    if not count:
        return
    source = BytesIO(b"".join((zigzag(count), packed, _END)))
    try:
        block_record: Any = fastavro.schemaless_reader(source, schemas.written, schemas.read)
        records = block_record[_RECORDS]
    except _BROKEN:
        raise budget.corrupt("its records do not fit the schema in its header") from None
    bytes_are_left = bool(source.read(1))
    if bytes_are_left or not isinstance(records, list) or len(records) != count:
        raise budget.corrupt(f"a block does not hold the {count} records it claims")
    read_at_once = sum(_read_at_once(record, budget) for record in records)
    budget.spend(max(0, len(packed) - read_at_once))
    for record in records:
        if not isinstance(record, dict):
            raise budget.corrupt("it does not hold records")
        if record["_VERSION"] != version:
            raise UnknownVersion(
                f"{budget.path} is of version {record['_VERSION']}; "
                f"this release reads version {version}. "
                "Rewrite the table with a newer Paimon, or upgrade this package.",
                path=budget.path,
            )
        yield record


def _read_at_once(value: Any, budget: _Budget) -> int:
    """Counts the bytes of a value that are read in one step: its texts and bytes. Records in arrays
    inside the value are spent from the budget.
    """
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum([_read_at_once(member, budget) for member in value.values()])
    if not isinstance(value, list) or not value:
        return 0
    first = value[0]
    if first is None or isinstance(first, int):  # an array of numbers
        return 0
    if isinstance(first, dict):
        budget.spend(_SMALL_PER_INNER * len(value))
    return sum([_read_at_once(item, budget) for item in value])


def _projected(node: Any, wanted: Any) -> Any:
    """The schema without the fields that are not wanted."""
    if isinstance(wanted, list):
        wanted = wanted[1]  # of ["null", type]
    if isinstance(node, list):
        return [branch if branch == "null" else _projected(branch, wanted) for branch in node]
    if not isinstance(node, dict) or not isinstance(wanted, dict):
        return node
    if "items" in node and "items" in wanted:
        return {**node, "items": _projected(node["items"], wanted["items"])}
    if "fields" not in node or "fields" not in wanted:
        return node
    wanted_types = {field["name"]: field["type"] for field in wanted["fields"]}
    fields = [
        {**field, "type": _projected(field["type"], wanted_types[field["name"]])}
        for field in node["fields"]
        if field["name"] in wanted_types
    ]
    return {**node, "fields": fields}


def _misfit(wanted: Any, written: Any) -> str | None:
    """What is wrong with a writer's schema; None if its records can be read as `wanted`."""
    if not isinstance(written, dict) or written.get("type") != "record":
        return "it does not hold records"
    written_types = {field["name"]: field["type"] for field in written["fields"]}
    if len(written_types) < len(written["fields"]):
        return "one of its fields comes twice"
    for field in wanted["fields"]:
        name = field["name"]
        wanted_type = field["type"]
        nullable = isinstance(wanted_type, list)
        if name not in written_types:
            if nullable:
                continue
            return f"its records have no {name}"
        branches = _branches(written_types[name])
        value_types = [branch for branch in branches if branch != "null"]
        is_wrongly_nullable = len(branches) > 1 and not nullable
        if len(value_types) != 1 or is_wrongly_nullable:
            return f"its field {name} is of another type"
        value_type = wanted_type[1] if nullable else wanted_type
        if isinstance(value_type, dict) and value_type["type"] == "record":
            inner_problem = _misfit(value_type, value_types[0])
            if inner_problem:
                return f"in {name}, {inner_problem}"
        elif _family(value_type) != _family(value_types[0]):
            return f"its field {name} is of another type"
    return None


def _branches(type_: Any) -> list[Any]:
    """The types of a union; a type that is no union is the only one."""
    return type_ if isinstance(type_, list) else [type_]


def _family(type_: Any) -> Any:
    """One name for all types whose values are read as the same Python values."""
    if isinstance(type_, dict):
        if type_["type"] == "array":
            item_types = [branch for branch in _branches(type_["items"]) if branch != "null"]
            return "array", tuple(sorted({str(_family(item)) for item in item_types}))
        return _family(type_["type"])
    return "long" if type_ == "int" else type_


# -- schemas of any file --------------------------------------------------------------------------
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
    """The parsed schema of an array of records.

    Args:
        items: the schema of one of the records, as JSON values.
        most_empty: how many values without bytes a record may have.

    Raises:
        ValueError: a type contains itself, so that its values could nest without end. The error is
            also raised if an array has values without bytes, or a record has many members without
            bytes, because the size of the file does not limit their number.
        Exception: one of `SCHEMA_ERRORS`, or an error of Python, for an invalid schema.
    """
    parsed = fastavro.parse_schema({"type": "array", "items": items})
    # The call raises an error for a type whose values can be very many although they have few
    # bytes.
    _weigh(parsed["items"], {"null": _Weight(is_empty=True, empty_values=1)}, most_empty)
    return parsed


def _without_logical_types(node: Any) -> Any:
    """The schema, with logical types under another key. So fastavro returns values as they are
    stored.
    """
    if isinstance(node, dict):
        return {
            LOGICAL if key == "logicalType" else key: _without_logical_types(value)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_without_logical_types(item) for item in node]
    return node


class _Weight(NamedTuple):
    """The weight of a type in bytes.

    Attributes:
        is_empty: whether no value of the type has bytes.
        empty_values: how many values without bytes are in one value of the type, itself included.
    """

    is_empty: bool
    empty_values: int


def _weigh(node: Any, known: dict[str, _Weight | None], most_empty: int) -> _Weight:
    """The weight of a type. `known` has the weights of the named types that were met so far, and
    gets the weights of types inside this one. The value is None while a named type is being
    weighed.
    """
    if isinstance(node, str):
        weight = known.get(node, _Weight(is_empty=False, empty_values=0))
        if weight is None:
            raise ValueError(f"the type {node[:80]!r} holds itself")
        return weight
    if isinstance(node, list):  # a union has a byte that says which of its types comes
        branches = [_weigh(branch, known, most_empty) for branch in node if branch != "null"]
        return _Weight(is_empty=False, empty_values=_empty_values(branches))
    kind = node["type"]
    if kind == "array":
        item = _weigh(node["items"], known, most_empty)
        if item.is_empty:
            raise ValueError("an array in it has values without bytes")
        return _Weight(is_empty=False, empty_values=item.empty_values)
    if kind == "map":
        value = _weigh(node["values"], known, most_empty)
        return _Weight(is_empty=False, empty_values=value.empty_values)
    if kind not in _NAMED:
        return _weigh(kind, known, most_empty)
    known[node["name"]] = None
    members = [_weigh(field["type"], known, most_empty) for field in node.get("fields", ())]
    is_empty = _is_empty(node, members)
    empty_values = _empty_values(members)
    if is_empty:
        empty_values += 1
    if empty_values > most_empty:
        raise ValueError(f"more than {most_empty} of its values have no bytes")
    named = _Weight(is_empty=is_empty, empty_values=empty_values)
    known[node["name"]] = named
    return named


def _empty_values(weights: Iterable[_Weight]) -> int:
    return sum(weight.empty_values for weight in weights)


def _is_empty(node: Any, members: Sequence[_Weight]) -> bool:
    """Whether no value of a named type has bytes."""
    if node["type"] == "fixed":
        return bool(node["size"] == 0)
    if node["type"] == "enum":
        return False
    return all(member.is_empty for member in members)
