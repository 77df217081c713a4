"""Keeps the fields of Avro records that this release does not know. They are found in the bytes of
a block when it is read, and are put back when the records are written (format.md §1.5).

Such a field is not decoded. Its bytes are cut out of the block and put at the end of the record
that had it. So a crafted file costs no more memory than its bytes, and every type is kept exactly.
Only arrays of numbers are decoded, because commit messages have them in another form (format.md
§8.2).

The writer's schema shows which unknown fields a file has. This is determined once for each schema.
Files without such fields take no more time.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.avro_file import zigzag
from paimon_stream.format.raw_bytes import unzigzag
from paimon_stream.format.unknown_fields import UnknownField, UnknownFields, names_of

Skip: TypeAlias = Callable[[bytes, int], int]
"""Returns where the value that begins at a position ends. That may be beyond the bytes. Raises
`ValueError` or `IndexError` for bytes that are not such a value.
"""

Types: TypeAlias = tuple[tuple[tuple[str, ...], str], ...]
"""Unknown fields of a schema: the place of each, and its type in JSON."""

LOGICAL: Final = "paimon_stream.logicalType"
"""What stands for `logicalType` in a schema whose values are wanted as they are stored."""

_MOST_NODES: Final = 10_000
"""The most parts of the type of an unknown field. A type that is named can stand for many."""

_MOST_BYTES: Final = 10
"""The most bytes of a number of 64 bits."""

_NULL: Final = zigzag(0)
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_RECORDS: Final = ("record", "error")
_OF_NAMES: Final = ("name", "namespace", "aliases", "doc")


# -- where values end -----------------------------------------------------------------------------
def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number at the position `at`, and the position where it ends."""
    start = at
    at = _after_number(data, at)
    if at - start > _MOST_BYTES:
        raise ValueError("a number is too long")
    bits = 0  # each byte has seven of them, the lowest first
    for byte in reversed(data[start:at]):
        bits = bits << 7 | byte & 127
    return unzigzag(bits), at


def _after_number(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _after_bytes(data: bytes, at: int) -> int:
    size, at = _number(data, at)
    if size < 0:
        raise ValueError("a size is negative")
    return at + size


def _block_head(data: bytes, at: int) -> tuple[int, int]:
    """The number of items in a block of an array or a map, and the position of its first item. The
    block begins at the position `at`. The last block has no items. Every item has bytes
    (`parsed_array`).
    """
    items, at = _number(data, at)
    if items < 0:
        items = -items
        at = _after_number(data, at)  # the size of the block in bytes
    if items > len(data) - at:
        raise ValueError("an array or a map has more items than bytes")
    return items, at


class Behind(NamedTuple):
    """Unknown fields of a record, which follow its known fields.

    Attributes:
        path: the names of the fields from the whole record down to this one.
        fields: the unknown fields, as parsed.
    """

    path: tuple[str, ...]
    fields: Sequence[Mapping[str, Any]]


class Schema:
    """A parsed schema of records. It makes functions that skip values of its types."""

    def __init__(self, record: Any) -> None:
        """`record` is the schema of a record as `fastavro.parse_schema` returns it. No type in it
        may contain itself.
        """
        self.record = record
        self.named: dict[str, Any] = {}
        self._skips: dict[str, Skip] = {}
        self._collect(record)

    def _collect(self, node: Any) -> None:
        if isinstance(node, list):
            for branch in node:
                self._collect(branch)
        elif isinstance(node, dict):
            if "name" in node:
                self.named[node["name"]] = node
            for inner in (node.get("items"), node.get("values"), node["type"]):
                self._collect(inner)
            for field in node.get("fields", ()):
                self._collect(field["type"])

    def resolved(self, node: Any) -> Any:
        """The definition of a type. A name is replaced by the type that it stands for, and an
        object that only wraps another type is replaced by the wrapped type.
        """
        while True:
            if isinstance(node, str) and node in self.named:
                node = self.named[node]
            elif isinstance(node, dict) and self._only_names(node):
                node = node["type"]
            else:
                return node

    def _only_names(self, node: Mapping[str, Any]) -> bool:
        """Whether an object only wraps another type."""
        inner = node["type"]
        return "name" not in node and (isinstance(inner, dict | list) or inner in self.named)

    def behind(self, wanted: Any, last: str) -> list["Behind"] | None:
        """The unknown fields that follow the known ones, innermost record first. `last` is the name
        of a known field that is a record. If it is the last known field, the fields of that record
        are searched, too. None if the records do not begin with the bytes that records of the
        `wanted` schema have.
        """
        known = Schema(wanted)
        behind: list[Behind] = []
        node = self.resolved(self.record)
        path: tuple[str, ...] = ()
        while isinstance(node, dict) and node["type"] == "record":
            fields = node["fields"]
            known_fields = wanted["fields"]
            known_count = len(known_fields)
            behind.insert(0, Behind(path, fields[known_count:]))
            ends_with_record = known_fields[-1]["name"] == last
            compared = known_count - 1 if ends_with_record else known_count
            known_layouts = known._layouts(known_fields[:compared])
            if self._layouts(fields[:compared]) != known_layouts:
                return None
            if not ends_with_record:
                return behind
            if [field["name"] for field in fields[compared:known_count]] != [last]:
                return None
            path = (*path, last)
            node = self.resolved(fields[compared]["type"])
            wanted = known_fields[compared]["type"]
        return None

    def _layouts(self, fields: Iterable[Mapping[str, Any]]) -> list[Any]:
        """The name of each field, with the layout of its type."""
        return [(field["name"], self._layout(field["type"])) for field in fields]

    def _layout(self, node: Any) -> Any:
        """The part of a type that decides how values are encoded. It has no names of types, and no
        further attributes.
        """
        node = self.resolved(node)
        if isinstance(node, list):
            return [self._layout(branch) for branch in node]
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "int" | "long":
                return "long"
            case "array":
                return kind, self._layout(node["items"])
            case "record":
                return kind, self._layouts(node["fields"])
        return kind

    def skip(self, node: Any) -> Skip:
        """A function that skips a value of a type of this schema."""
        node = self.resolved(node)
        if isinstance(node, list):
            return _skip_union([self.skip(branch) for branch in node])
        if isinstance(node, str):
            return _skip_plain(node)
        name = node.get("name")
        if name in self._skips:
            return self._skips[name]
        skip = self._skip_of_object(node)
        if name is not None:
            self._skips[name] = skip
        return skip

    def _skip_of_object(self, node: Mapping[str, Any]) -> Skip:
        match node["type"]:
            case "array":
                return _skip_items([self.skip(node["items"])])
            case "map":
                return _skip_items([_after_bytes, self.skip(node["values"])])
            case "record" | "error":
                return _skip_all([self.skip(field["type"]) for field in node["fields"]])
            case "fixed":
                return _skip_size(node["size"])
            case kind:
                return _skip_plain(kind)


def _skip_plain(kind: str) -> Skip:
    if kind in _SIZES:
        return _skip_size(_SIZES[kind])
    return _after_bytes if kind in ("bytes", "string") else _after_number


def _skip_size(size: int) -> Skip:
    return lambda data, at: at + size


def _skip_union(branches: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = _number(data, at)
        if branch < 0:
            raise ValueError("a union has no such branch")
        return branches[branch](data, at)

    return skip


def _skip_all(skips: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for skip_member in skips:
            at = skip_member(data, at)
        return at

    return skip


def _skip_items(skips: Sequence[Skip]) -> Skip:
    skip_item = skips[0] if len(skips) == 1 else _skip_all(skips)

    def skip(data: bytes, at: int) -> int:
        items, at = _block_head(data, at)
        while items:
            for _ in range(items):
                at = skip_item(data, at)
            items, at = _block_head(data, at)
        return at

    return skip


# -- reading --------------------------------------------------------------------------------------
class _Step(NamedTuple):
    """How a field of a record is searched for unknown fields.

    Attributes:
        name: the name of the field.
        skip: skips the value of the field.
        unknown: how the value is kept if the field is unknown; otherwise None.
        search: searches the value if unknown fields can be inside; otherwise None.
    """

    name: str
    skip: Skip
    unknown: "_Kept | None"
    search: "_Search | None"


class _Kept(NamedTuple):
    """How the values of an unknown field are kept.

    Attributes:
        type: the Avro type in which the value is kept, as in `UnknownField`.
        branches: for each branch of the writer's union, the encoded number of that branch in
            `type`, or None for null. None if the writer's type is no union.
    """

    type: str
    branches: Sequence[bytes | None] | None

    def value(self, data: bytes) -> bytes | None:
        """The value, encoded as `type`. `data` has its bytes in the writer's type. None for
        null.
        """
        if self.branches is None:
            return zigzag(1) + data
        branch, end = _number(data, 0)
        prefix = self.branches[branch]
        return None if prefix is None else prefix + data[end:]


_Path: TypeAlias = tuple[str | int, ...]
_Search: TypeAlias = Callable[[bytes, int, _Path, list[UnknownField]], int]
"""Appends the unknown fields of the value at a position, whose path is given. Returns where the
value ends.
"""


class Finder:
    """Finds the unknown fields of a file's records.

    Attributes:
        schema: the writer's schema.
        finds: whether the schema has unknown fields.
    """

    def __init__(self, written: Any, wanted: Any) -> None:
        """Compares the writer's schema of a record with the known fields.

        Args:
            written: the writer's schema, as `fastavro.parse_schema` returns it.
            wanted: the known fields, in JSON.

        Raises:
            ValueError: the type of an unknown field has too many parts.
        """
        self.schema = Schema(written)
        self._search = self._search_of(written, wanted, ())
        self.finds = self._search is not None

    def unknown(self, data: bytes, records: int) -> list[UnknownFields]:
        """The unknown fields of each record of a block. Raises `ValueError` or `IndexError`
        if the bytes are not records of this schema.
        """
        assert self._search is not None
        of_records: list[UnknownFields] = []
        at = 0
        for _ in range(records):
            fields: list[UnknownField] = []
            at = self._search(data, at, (), fields)
            of_records.append(tuple(sorted(fields)))
        if at != len(data):
            raise ValueError("the records end elsewhere")
        return of_records

    def rest(self, behind: Iterable["Behind"]) -> "Rest":
        """The unknown fields at the ends of records, which follow one another."""
        searches = []
        skips: list[Skip] = []
        for path, fields in behind:
            steps = [self._step(field, None, path) for field in fields]
            searches.append((path, _search_fields(steps)))
            skips += [step.skip for step in steps]
        return Rest(skip=_skip_all(skips), searches=searches)

    def _search_of(self, node: Any, wanted: Any, place: tuple[str, ...]) -> _Search | None:
        """A function that searches values of a type; None if no unknown field can be inside."""
        node = self.schema.resolved(node)
        wanted = _value_type(wanted)
        if isinstance(node, list):
            searches = [self._search_of(branch, wanted, place) for branch in node]
            skips = [self.schema.skip(branch) for branch in node]
            return _search_union(searches, skips) if any(searches) else None
        if not isinstance(node, dict) or not isinstance(wanted, dict):
            return None
        if "items" in node and "items" in wanted:
            search_item = self._search_of(node["items"], wanted["items"], place)
            return None if search_item is None else _search_items(search_item)
        if "fields" not in node or "fields" not in wanted:
            return None
        known = {field["name"]: field["type"] for field in wanted["fields"]}
        steps = [self._step(field, known.get(field["name"]), place) for field in node["fields"]]
        if not any(step.unknown or step.search for step in steps):
            return None
        return _search_fields(steps)

    def _step(self, field: Mapping[str, Any], wanted: Any, place: tuple[str, ...]) -> _Step:
        """How a field is searched. `wanted` is the known type of the field; None for an unknown
        field.
        """
        name = field["name"]
        inside = (*place, name)
        unknown = None
        search = None
        if wanted is None:
            unknown = self._kept(field["type"], inside)
        else:
            search = self._search_of(field["type"], wanted, inside)
        return _Step(name, self.schema.skip(field["type"]), unknown, search)

    def _kept(self, type_: Any, place: tuple[str, ...]) -> _Kept | None:
        """How values of an unknown field are kept; None if the field can only be null."""
        own = _OwnType(self.schema, place)
        node = self.schema.resolved(type_)
        if not isinstance(node, list):
            kept = [] if _is_null(node) else [own.of(node)]
            branches = None
        else:
            kept = [own.of(branch) for branch in node if not _is_null(branch)]
            numbers = count(1)
            branches = [None if _is_null(branch) else zigzag(next(numbers)) for branch in node]
        if not kept:
            return None
        return _Kept(json.dumps(["null", *kept], sort_keys=True), branches)


def _is_null(node: Any) -> bool:
    return node in ("null", {"type": "null"})


def _value_type(wanted: Any) -> Any:
    """The type of a known field's values that are not null."""
    return wanted[1] if isinstance(wanted, list) else wanted


def _search_union(searches: Sequence[_Search | None], skips: Sequence[Skip]) -> _Search:
    def search(data: bytes, at: int, path: _Path, unknown_fields: list[UnknownField]) -> int:
        branch, at = _number(data, at)
        if branch < 0:
            raise ValueError("a union has no such branch")
        search_branch = searches[branch]
        if search_branch is None:
            return skips[branch](data, at)
        return search_branch(data, at, path, unknown_fields)

    return search


def _search_items(search_item: _Search) -> _Search:
    def search(data: bytes, at: int, path: _Path, unknown_fields: list[UnknownField]) -> int:
        positions = count()
        items, at = _block_head(data, at)
        while items:
            for _ in range(items):
                at = search_item(data, at, (*path, next(positions)), unknown_fields)
            items, at = _block_head(data, at)
        return at

    return search


def _search_fields(steps: Sequence[_Step]) -> _Search:
    """A function that searches the fields of `steps`, which follow one another."""

    def search(data: bytes, at: int, path: _Path, unknown_fields: list[UnknownField]) -> int:
        for name, skip, unknown, search_inside in steps:
            if search_inside is not None:
                at = search_inside(data, at, (*path, name), unknown_fields)
                continue
            end = skip(data, at)
            if unknown is not None:
                value = unknown.value(data[at:end])
                if value is not None:
                    unknown_fields.append(UnknownField((*path, name), unknown.type, value))
            at = end
        return at

    return search


class Rest(NamedTuple):
    """The unknown fields at the end of a record, and at the end of the last record inside it.

    Attributes:
        skip: skips all of these fields.
        searches: the path of each record, with the function that searches its unknown fields.
    """

    skip: Skip
    searches: Sequence[tuple[tuple[str, ...], _Search]]

    def unknown(self, data: bytes) -> UnknownFields:
        """The unknown fields in the bytes that `skip` has skipped."""
        unknown_fields: list[UnknownField] = []
        at = 0
        for path, search in self.searches:
            at = search(data, at, path, unknown_fields)
        return tuple(sorted(unknown_fields))


class _OwnType:
    """The type of an unknown field in a form that means the same in any schema. No type is replaced
    by its name, and named types get names that the types of other fields do not have. Readers find
    fields by the names of fields, and not by the names of types (format.md §4.1).
    """

    def __init__(self, schema: Schema, place: Iterable[str]) -> None:
        self._schema = schema
        self._digest = hashlib.blake2b("\0".join(place).encode(), digest_size=8).hexdigest()
        self._names = count()
        self._nodes = count(1)

    def of(self, node: Any) -> Any:
        """The type `node` in that form. Raises `ValueError` if it has too many parts."""
        if next(self._nodes) > _MOST_NODES:
            raise ValueError(f"a type in it has more than {_MOST_NODES:,} parts")
        node = self._schema.resolved(node)
        if isinstance(node, str):
            return node
        if isinstance(node, list):
            return [self.of(branch) for branch in node]
        own = {key: value for key, value in node.items() if key not in _OF_NAMES}
        if LOGICAL in own:
            own["logicalType"] = own.pop(LOGICAL)
        if "name" in node:
            own["name"] = f"unknown_{self._digest}_{next(self._names)}"
        for key in ("items", "values"):
            if key in own:
                own[key] = self.of(own[key])
        if "fields" in own:
            own["fields"] = [
                {"name": field["name"], "type": self.of(field["type"])} for field in own["fields"]
            ]
        return own


# -- arrays of numbers ----------------------------------------------------------------------------
LONGS: Final = json.dumps(["null", {"type": "array", "items": "long"}], sort_keys=True)
"""The type of an unknown field that is an array of longs, as `UnknownField` has it."""


def field_of_longs(path: _Path, numbers: Sequence[int]) -> UnknownField:
    """An unknown field at a path, whose value is an array of numbers of 64 bits."""
    items = (zigzag(len(numbers)), *map(zigzag, numbers)) if numbers else ()
    return UnknownField(path, LONGS, b"".join((zigzag(1), *items, zigzag(0))))


def longs_of(field: UnknownField) -> tuple[int, ...]:
    """The numbers of an unknown field that came from a file and whose type is `LONGS`."""
    numbers: list[int] = []
    _, at = _number(field.data, 0)
    items, at = _block_head(field.data, at)
    while items:
        for _ in range(items):
            number, at = _number(field.data, at)
            numbers.append(number)
        items, at = _block_head(field.data, at)
    return tuple(numbers)


# -- writing --------------------------------------------------------------------------------------
def types_of(unknown: UnknownFields) -> Types:
    """The place and the type of each unknown field of a record. The schema of a file with this
    record must have room for these fields.
    """
    return tuple(sorted({(field.place, field.type) for field in unknown}))


def joined(schemas: Iterable[Types]) -> Types | None:
    """The unknown fields of several schemas. None if a field has different types in these schemas,
    so that no schema has room for all.
    """
    type_at: dict[tuple[str, ...], str] = {}
    for fields in schemas:
        for place, type_ in fields:
            if type_at.setdefault(place, type_) != type_:
                return None
    return tuple(sorted(type_at.items()))


def types_in_file(unknown: Iterable[UnknownFields], what: str) -> Types:
    """The places and types of the unknown fields of some records, which must fit into one file.
    `what` says which file, such as "the manifest list". Raises `UnsupportedFeature` if no schema
    has room for all of the fields.
    """
    of_records = [fields for fields in unknown if fields]
    types = joined(map(types_of, of_records))
    if types is None:
        names = names_of(tuple(field for fields in of_records for field in fields))
        raise UnsupportedFeature(
            f"Writers of several releases have put fields of different types into {what}, which this release does not "
            f"know: {names}. It would lose some of them. Write the table with the newest of these releases."
        )
    return types


@lru_cache(maxsize=32)
def extended(schema: bytes, types: Types) -> bytes:
    """The schema in JSON, with unknown fields at the ends of its records."""
    if not types:
        return schema
    record = json.loads(schema)
    for (*place, name), type_ in types:
        node = record
        for known in place:
            (field,) = [field for field in node["fields"] if field["name"] == known]
            node = _record_in(field["type"])
        node["fields"].append({"name": name, "type": json.loads(type_), "default": None})
    return json.dumps(record, separators=(",", ":")).encode()


def _record_in(node: Any) -> Any:
    """The record that a type is, or that it has as its items."""
    node = _value_type(node)
    return _record_in(node["items"]) if "items" in node else node


def with_unknown(
    data: bytes, unknown: Sequence[UnknownFields], schema: bytes, types: Types
) -> bytes:
    """Encodes records together with their unknown fields.

    Args:
        data: the records, encoded by `schema`.
        unknown: the unknown fields of each record.
        schema: the known fields, in JSON.
        types: all unknown fields of the extended schema.

    Returns:
        The records, encoded by `extended(schema, types)`.
    """
    weaver = _Weaver(json.loads(schema), types)
    at = 0
    for fields in unknown:
        at = weaver.record(data, at, {field.path: field.data for field in fields})
    return b"".join(weaver.pieces)


class _Weaver:
    """Puts unknown fields into records.

    Attributes:
        pieces: the bytes of the extended records.
    """

    def __init__(self, record: Any, types: Types) -> None:
        self.pieces: list[bytes] = []
        self._schema = Schema(record)
        self._names: dict[tuple[str, ...], list[str]] = {}
        for (*place, name), _ in types:
            self._names.setdefault(tuple(place), []).append(name)
        # The places of records that get unknown fields, and all places on the way to them.
        self._ways = {place[:depth] for place in self._names for depth in range(len(place) + 1)}
        self._skips: dict[tuple[str, ...], Skip] = {}
        """A function that skips a value, for each place without unknown fields that was met."""

    def record(self, data: bytes, at: int, values: Mapping[_Path, bytes]) -> int:
        """Adds a record, with values of unknown fields by their paths. Returns the position where
        the known fields of the record end.
        """
        return self._add(self._schema.record, data, at, (), (), values)

    def _add(
        self,
        node: Any,
        data: bytes,
        at: int,
        place: tuple[str, ...],
        path: _Path,
        values: Mapping[_Path, bytes],
    ) -> int:
        if place not in self._ways:
            skip = self._skips.get(place)
            if skip is None:
                skip = self._skips[place] = self._schema.skip(node)
            end = skip(data, at)
            self.pieces.append(data[at:end])
            return end
        if isinstance(node, list):
            branch, end = _number(data, at)
            self.pieces.append(data[at:end])
            return self._add(node[branch], data, end, place, path, values) if branch else end
        if "items" in node:
            return self._add_items(node["items"], data, at, place, path, values)
        for field in node["fields"]:
            name = field["name"]
            at = self._add(field["type"], data, at, (*place, name), (*path, name), values)
        for name in self._names.get(place, ()):
            self.pieces.append(values.get((*path, name), _NULL))
        return at

    def _add_items(
        self,
        node: Any,
        data: bytes,
        at: int,
        place: tuple[str, ...],
        path: _Path,
        values: Mapping[_Path, bytes],
    ) -> int:
        position = 0
        while True:
            size, end = _number(data, at)
            self.pieces.append(data[at:end])
            at = end
            if not size:
                return at
            for _ in range(size):
                at = self._add(node, data, at, place, (*path, position), values)
                position += 1
