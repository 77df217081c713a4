"""Avro data files, a few blocks at a time (format.md §7.6). Arrow does not read Avro, so rows are
decoded in Python and then converted column by column. The names of types and fields in a file may
be ones that Avro forbids. To decode a block, only the order of fields matters, so the decoder gets
generated names. Afterwards, the columns are chosen by their names in the file.
"""

import io
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import fastavro
import pyarrow as pa

from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.avro_file import AvroBlock, open_file, zigzag
from paimon_stream.format.avro_records import SCHEMA_ERRORS, parsed_array
from paimon_stream.format.json_text import BROKEN, in_words, parse_json
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.read.convert import Chunk, normalize

_BROKEN: Final = (*BROKEN, MemoryError, *SCHEMA_ERRORS)
_PRIMITIVES: Final = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_BATCH_BYTES: Final = 32 << 20
"""After reading this many bytes, records are returned even if they are fewer than asked for."""
_ESCAPES: Final = "surrogateescape"
"""The error handler by which Python text holds bytes that are not UTF-8 (PEP 383)."""


def read_avro(
    source: Any, path: str, fields: Sequence[DataField], batch_rows: int
) -> Iterator[Chunk]:
    """Reads those columns of `fields` that the file has, by name.

    Args:
        source: the opened file.
        path: its path, for errors.
        fields: the wanted columns, from the schema that the file was written with.
        batch_rows: about how many rows a chunk has.

    Raises:
        FormatError: the file is broken.
    """
    try:
        schema_text, blocks = open_file(source, path)
        names, schema = _anonymous(schema_text)
        key_of = {name: f"f{position}" for position, name in enumerate(names)}
        present = [field for field in fields if field.name in key_of]
        keys = [key_of[field.name] for field in present]
        for records in _batches(blocks, schema, batch_rows):
            arrays = {
                field.name: _array([record[key] for record in records], field.type)
                for key, field in zip(keys, present, strict=True)
            }
            yield Chunk(len(records), arrays, normalize)
    except CorruptMetadata as broken:
        raise FormatError(broken.message, **broken.context) from None


def _batches(blocks: Iterator[AvroBlock], schema: Any, batch_rows: int) -> Iterator[list[Any]]:
    """The records of the blocks, at most `batch_rows` at a time, and fewer if they are large."""
    held: list[Any] = []
    size = 0
    for block in blocks:
        if not block.records:
            continue
        # An Avro block lacks only two marks of an Avro array: the count of records before them, and
        # the end mark after them.
        data = b"".join((zigzag(block.records), block.data, zigzag(0)))
        stream = io.BytesIO(data)
        try:
            held += fastavro.schemaless_reader(stream, schema, None, handle_unicode_errors=_ESCAPES)
        except _BROKEN as broken:
            raise FormatError(
                f"one of its blocks does not fit its schema: {in_words(broken)}"
            ) from None
        if stream.tell() != len(data):
            raise FormatError("one of its blocks does not fit its schema")
        size += len(data)
        while len(held) >= batch_rows or (held and size >= _BATCH_BYTES):
            yield held[:batch_rows]
            held = held[batch_rows:]
            size = 0
    if held:
        yield held


def _anonymous(text: str) -> tuple[list[str], Any]:
    """The column names, and the parsed schema of an array of records whose fields are named f0, f1,
    …. The schema has no logical types, so values are returned as they are stored.
    """
    try:
        node = parse_json(text)
        # Java writes a union with null if it regards the rows as nullable.
        record = node[-1] if isinstance(node, list) else node
        if record["type"] != "record":
            raise FormatError("its schema is not a record")
        names = [str(field["name"]) for field in record["fields"]]
        return names, parsed_array(_renamed(node, {}))
    except _BROKEN as broken:
        raise FormatError(f"its schema is not an Avro schema: {in_words(broken)}") from None


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """The type with generated names, both where named types are defined and where they are used.
    `names` maps the file's names to the names generated so far. The names generated for this type
    are added to it.
    """
    if isinstance(node, str):
        return node if node in _PRIMITIVES else names[node]
    if isinstance(node, list):
        return [_renamed(branch, names) for branch in node]
    kind = node["type"]
    match kind:
        case "record" | "fixed":
            generated = f"r{len(names)}"
            name = str(node["name"])
            names[name] = generated
            if node.get("namespace"):
                names[f"{node['namespace']}.{name}"] = generated
            if kind == "fixed":
                return {"type": kind, "name": generated, "size": int(node["size"])}
            fields = [
                {"name": f"f{position}", "type": _renamed(field["type"], names)}
                for position, field in enumerate(node["fields"])
            ]
            return {"type": kind, "name": generated, "fields": fields}
        case "array":
            return {"type": kind, "items": _renamed(node["items"], names)}
        case "map":
            return {"type": kind, "values": _renamed(node["values"], names)}
    return _renamed(kind, names)


def _array(values: list[Any], type_: DataType) -> pa.Array:
    """Turns the decoded values of a column, or of a part of a nested column, into an Arrow array.
    Raises `FormatError`.
    """
    wanted = arrow_type(type_)
    try:
        match type_.root:
            case TypeRoot.ARRAY:
                items = list(chain.from_iterable(value or () for value in values))
                return _lists(values, wanted, _array(items, type_.items))
            case TypeRoot.MAP | TypeRoot.MULTISET:
                return _maps(values, type_, wanted)
            case TypeRoot.ROW:
                return _structs(values, type_, wanted)
            case TypeRoot.DECIMAL:
                return _decimals(values, wanted)
            case TypeRoot.DATE | TypeRoot.TIME:
                return pa.array(values, pa.int32()).view(wanted)
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                return pa.array(values, pa.int64()).view(wanted)
            case TypeRoot.CHAR | TypeRoot.VARCHAR:
                return _texts(values, wanted)
        return pa.array(values, wanted)
    except (*_BROKEN, pa.ArrowException) as broken:
        raise FormatError(f"one of its columns is not {type_}: {in_words(broken)}") from None


def _texts(values: list[Any], wanted: pa.DataType) -> pa.Array:
    """Text with exactly the bytes of the file, which may not be UTF-8."""
    try:
        return pa.array(values, wanted)
    except UnicodeEncodeError:
        encoded = [None if value is None else value.encode(errors=_ESCAPES) for value in values]
        return pa.array(encoded, pa.binary()).view(wanted)


def _structs(values: list[Any], type_: DataType, wanted: pa.DataType) -> pa.Array:
    """Structs made from records, whose fields have generated names."""
    members = []
    for position, member in enumerate(type_.fields):
        key = f"f{position}"
        of_member = [None if value is None else value[key] for value in values]
        members.append(_array(of_member, member.type))
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)


def _maps(values: list[Any], type_: DataType, wanted: pa.DataType) -> pa.Array:
    """Maps. In the file, a map with text keys is an Avro map. Any other map is an array of records,
    each with a key and a value.
    """
    pairs = [None if value is None else _pairs(value) for value in values]
    flat = list(chain.from_iterable(of_map or () for of_map in pairs))
    key_type, item_type = type_.entry
    keys = _array([key for key, _ in flat], key_type)
    items = _array([item for _, item in flat], item_type)
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[wanted.key_field, wanted.item_field]
    )
    return _lists(pairs, wanted, entries)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return [(record["f0"], record["f1"]) for record in value]


def _lists(values: list[Any], wanted: pa.DataType, items: pa.Array) -> pa.Array:
    """Lists with the lengths of these values. `items` has the items of all lists, one list after
    the other.
    """
    offsets = pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        wanted, len(values), [valid.buffers()[1], offsets.buffers()[1]], children=[items]
    )


def _decimals(values: list[Any], wanted: pa.DataType) -> pa.Array:
    """Arrow's 128-bit decimals, made from unscaled numbers that are stored big endian in as few
    bytes as possible.
    """
    numbers = (int.from_bytes(value or b"", "big", signed=True) for value in values)
    raw = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(wanted, len(values), [valid.buffers()[1], pa.py_buffer(raw)])
