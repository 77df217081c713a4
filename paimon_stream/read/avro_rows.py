"""Avro data files, a few blocks at a time (format.md §7.6). Arrow does not read Avro, so rows are
decoded in Python and then converted column by column. A file may use names of types and fields that
Avro forbids. Only their order matters for reading, so the decoder gets generated names.
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
_KEPT: Final = "surrogateescape"
"""How Python text keeps bytes that are not UTF-8 (PEP 383)."""


def read_avro(
    source: Any, path: str, fields: Sequence[DataField], batch_rows: int
) -> Iterator[Chunk]:
    """The file's columns among `fields`, those of the schema it was written with, by name. Raises
    `FormatError`.
    """
    try:
        schema_text, blocks = open_file(source, path)
        names, schema = _anonymous(schema_text)
        present = [one for one in fields if one.name in names]
        keys = [f"f{names.index(one.name)}" for one in present]
        for records in _batches(blocks, schema, batch_rows):
            arrays = {
                one.name: _array([record[key] for record in records], one.type)
                for key, one in zip(keys, present, strict=True)
            }
            yield Chunk(len(records), arrays, normalize)
    except CorruptMetadata as broken:
        raise FormatError(broken.message, **broken.context) from None


def _batches(blocks: Iterator[AvroBlock], schema: Any, batch_rows: int) -> Iterator[list[Any]]:
    """The records of the blocks, about `batch_rows` at a time, fewer if they are large."""
    held: list[Any] = []
    size = 0
    for block in blocks:
        if not block.records:
            continue
        # A block is an Avro array of its records without the count before them and the end mark
        # after them.
        data = b"".join((zigzag(block.records), block.data, zigzag(0)))
        stream = io.BytesIO(data)
        try:
            held += fastavro.schemaless_reader(stream, schema, None, handle_unicode_errors=_KEPT)
        except _BROKEN as why:
            raise FormatError(
                f"one of its blocks does not fit its schema: {in_words(why)}"
            ) from None
        if stream.tell() != len(data):
            raise FormatError("one of its blocks does not fit its schema")
        size += len(data)
        while len(held) >= batch_rows or (held and size >= _BATCH_BYTES):
            yield held[:batch_rows]
            held, size = held[batch_rows:], 0
    if held:
        yield held


def _anonymous(text: str) -> tuple[list[str], Any]:
    """The column names, and the parsed schema of an array of records whose fields are named f0, f1,
    …. Logical types are left out, so values come as they are stored.
    """
    try:
        node = parse_json(text)
        record = (
            node[-1] if isinstance(node, list) else node
        )  # to Java, rows of some columns may be null
        if record["type"] != "record":
            raise FormatError("its schema is not a record")
        return [str(one["name"]) for one in record["fields"]], parsed_array(_renamed(node, {}))
    except _BROKEN as why:
        raise FormatError(f"its schema is not an Avro schema: {in_words(why)}") from None


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """The type with a generated name for every named type, also where it is used. `names` are those
    given so far.
    """
    if isinstance(node, str):
        return node if node in _PRIMITIVES else names[node]
    if isinstance(node, list):
        return [_renamed(one, names) for one in node]
    match kind := node["type"]:
        case "record" | "fixed":
            made, name = f"r{len(names)}", str(node["name"])
            names[name] = made
            if node.get("namespace"):
                names[f"{node['namespace']}.{name}"] = made
            if kind == "fixed":
                return {"type": kind, "name": made, "size": int(node["size"])}
            fields = [
                {"name": f"f{i}", "type": _renamed(one["type"], names)}
                for i, one in enumerate(node["fields"])
            ]
            return {"type": kind, "name": made, "fields": fields}
        case "array":
            return {"type": kind, "items": _renamed(node["items"], names)}
        case "map":
            return {"type": kind, "values": _renamed(node["values"], names)}
    return _renamed(kind, names)


def _array(values: list[Any], type_: DataType) -> pa.Array:
    wanted = arrow_type(type_)
    try:
        match type_.root:
            case TypeRoot.ARRAY:
                inner = _array(list(chain.from_iterable(one or () for one in values)), type_.items)
                return _lists(values, wanted, inner)
            case TypeRoot.MAP | TypeRoot.MULTISET:
                return _maps(values, type_, wanted)
            case TypeRoot.ROW:
                members = [
                    _array([None if one is None else one[f"f{i}"] for one in values], member.type)
                    for i, member in enumerate(type_.fields)
                ]
                mask = pa.array([one is None for one in values], pa.bool_())
                return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)
            case TypeRoot.DECIMAL:
                return _decimals(values, wanted)
            case TypeRoot.DATE | TypeRoot.TIME:
                return pa.array(values, pa.int32()).view(wanted)
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                return pa.array(values, pa.int64()).view(wanted)
            case TypeRoot.CHAR | TypeRoot.VARCHAR:
                return _texts(values, wanted)
        return pa.array(values, wanted)
    except (*_BROKEN, pa.ArrowException) as why:
        raise FormatError(f"one of its columns is not {type_}: {in_words(why)}") from None


def _texts(values: list[Any], wanted: pa.DataType) -> pa.Array:
    """Text with exactly the bytes of the file, which may not be UTF-8."""
    try:
        return pa.array(values, wanted)
    except UnicodeEncodeError:
        return pa.array(
            [None if one is None else one.encode(errors=_KEPT) for one in values], pa.binary()
        ).view(wanted)


def _maps(values: list[Any], type_: DataType, wanted: pa.DataType) -> pa.Array:
    """A map with text keys is an Avro map; any other map is an array of records of key and
    value.
    """
    pairs = [_pairs(one) for one in values]
    flat = list(chain.from_iterable(pairs))
    key, value = type_.entry
    keys = _array([one for one, _ in flat], key)
    items = _array([one for _, one in flat], value)
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[wanted.key_field, wanted.item_field]
    )
    return _lists(
        [None if one is None else many for one, many in zip(values, pairs, strict=True)],
        wanted,
        entries,
    )


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if value is None:
        return []
    return (
        list(value.items())
        if isinstance(value, dict)
        else [(one["f0"], one["f1"]) for one in value]
    )


def _lists(values: list[Any], wanted: pa.DataType, inner: pa.Array) -> pa.Array:
    offsets = pa.array(accumulate((len(one or ()) for one in values), initial=0), pa.int32())
    valid = pa.array([one is not None for one in values], pa.bool_())
    return pa.Array.from_buffers(
        wanted, len(values), [valid.buffers()[1], offsets.buffers()[1]], children=[inner]
    )


def _decimals(values: list[Any], wanted: pa.DataType) -> pa.Array:
    """Unscaled numbers, stored big endian in as few bytes as possible, as Arrow's 128-bit
    decimals.
    """
    numbers = (int.from_bytes(one or b"", "big", signed=True) for one in values)
    raw = b"".join(one.to_bytes(16, "little", signed=True) for one in numbers)
    valid = pa.array([one is not None for one in values], pa.bool_())
    return pa.Array.from_buffers(wanted, len(values), [valid.buffers()[1], pa.py_buffer(raw)])
