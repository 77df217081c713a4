"""Paimon's data types: their text and JSON forms, and their Arrow types (format.md §2.4, §2.5).

Every type of the format can be read here. The writer decides which types can be *written*
(`write/conform.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature

__all__ = ["MAX_LENGTH", "DataField", "DataType", "TypeRoot", "arrow_type", "from_arrow", "parse_type"]

MAX_LENGTH: Final = 2**31 - 1
"""The length of a STRING, which is VARCHAR(2147483647), and of BYTES."""


class TypeRoot(Enum):
    """The kinds of types; the value is the keyword of the canonical text."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    ARRAY = "ARRAY"
    MAP = "MAP"
    MULTISET = "MULTISET"
    ROW = "ROW"


_PLAIN: Final = {
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_WITH_LENGTH: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY}
_WITH_PRECISION: Final = {TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
_NESTED: Final = {TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """One type. `precision` is the length of CHAR, VARCHAR, BINARY and VARBINARY, and the precision of
    DECIMAL, TIME and the timestamps. `element` is the element of ARRAY and MULTISET, and the value of MAP.
    `fields` are the members of ROW."""

    root: TypeRoot
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    key: DataType | None = None
    element: DataType | None = None
    fields: tuple[DataField, ...] = ()

    @property
    def is_nested(self) -> bool:
        """True for ARRAY, MAP, MULTISET and ROW."""
        return self.root in _NESTED

    @property
    def is_timestamp(self) -> bool:
        """True for timestamps with and without local time zone."""
        return self.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

    @property
    def is_string(self) -> bool:
        """True for CHAR, VARCHAR and STRING."""
        return self.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)

    @property
    def is_binary(self) -> bool:
        """True for BINARY, VARBINARY and BYTES."""
        return self.root in (TypeRoot.BINARY, TypeRoot.VARBINARY)

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type, nullable or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def to_json(self) -> Any:
        """The form in a schema file: a string for an atomic type, an object for a nested one."""
        suffix = "" if self.nullable else " NOT NULL"
        if not self.is_nested:
            return self._text() + suffix
        node: dict[str, Any] = {"type": self.root.value + suffix}
        if self.key is not None:
            node["key"] = self.key.to_json()
        if self.element is not None:
            node["value" if self.root is TypeRoot.MAP else "element"] = self.element.to_json()
        if self.root is TypeRoot.ROW:
            node["fields"] = [field.to_json() for field in self.fields]
        return node

    def _text(self) -> str:
        name = self.root.value
        if self.root in _WITH_LENGTH:
            full = {TypeRoot.VARCHAR: "STRING", TypeRoot.VARBINARY: "BYTES"}.get(self.root)
            return full if full and self.precision == MAX_LENGTH else f"{name}({self.precision})"
        if self.root is TypeRoot.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.root is TypeRoot.TIMESTAMP_LTZ:
            return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
        return f"{name}({self.precision})" if self.root in _WITH_PRECISION else name

    def __str__(self) -> str:
        """The SQL text, as users write it."""
        suffix = "" if self.nullable else " NOT NULL"
        match self.root:
            case TypeRoot.ARRAY | TypeRoot.MULTISET:
                return f"{self.root.value}<{self.element}>{suffix}"
            case TypeRoot.MAP:
                return f"MAP<{self.key}, {self.element}>{suffix}"
            case TypeRoot.ROW:
                inner = ", ".join(f"{field.name} {field.type}" for field in self.fields)
                return f"ROW<{inner}>{suffix}"
            case _:
                return self._text() + suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A column, or a member of a ROW. `id` stays the same through renames."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The form in a schema file."""
        node: dict[str, Any] = {"id": self.id, "name": self.name, "type": self.type.to_json()}
        if self.description is not None:
            node["description"] = self.description
        if self.default_value is not None:
            node["defaultValue"] = self.default_value
        return node


_ATOMIC = re.compile(
    r"\s*(?P<name>[A-Z_]+(?:\s+PRECISION)?)"
    r"\s*(?:\(\s*(?P<p>\d+)\s*(?:,\s*(?P<s>\d+)\s*)?\))?"
    r"\s*(?P<zone>WITH\s+LOCAL\s+TIME\s+ZONE|WITHOUT\s+TIME\s+ZONE)?"
    r"\s*(?P<null>NOT\s+NULL|NULL)?\s*",
    re.IGNORECASE,
)
_ALIASES: Final = {
    "INTEGER": "INT",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "STRING": "VARCHAR",
    "BYTES": "VARBINARY",
}
_DEFAULT_PRECISION: Final = {
    TypeRoot.CHAR: 1,
    TypeRoot.VARCHAR: 1,
    TypeRoot.BINARY: 1,
    TypeRoot.VARBINARY: 1,
    TypeRoot.DECIMAL: 10,
    TypeRoot.TIMESTAMP: 6,
    TypeRoot.TIMESTAMP_LTZ: 6,
}


def parse_type(node: Any) -> DataType:
    """Reads a type from a schema file (string or object) or from a user's SQL text.

    Raises `UnsupportedFeature` for VARIANT, BLOB and VECTOR, `CorruptMetadata` for anything else that is not
    a type.
    """
    if isinstance(node, str):
        nested = re.fullmatch(
            r"\s*(ARRAY|MAP|MULTISET|ROW)\s*<(.*)>\s*(NOT\s+NULL|NULL)?\s*", node, re.I | re.S
        )
        return _parse_sql_nested(*nested.groups()) if nested else _parse_atomic(node)
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise CorruptMetadata(f"Not a data type: {node!r}.")
    keyword, _, suffix = node["type"].strip().upper().partition(" ")
    nullable = suffix.split() != ["NOT", "NULL"]
    try:
        match keyword:
            case "ARRAY" | "MULTISET":
                return DataType(
                    root=TypeRoot(keyword), nullable=nullable, element=parse_type(node["element"])
                )
            case "MAP":
                return DataType(
                    root=TypeRoot.MAP,
                    nullable=nullable,
                    key=parse_type(node["key"]),
                    element=parse_type(node["value"]),
                )
            case "ROW":
                fields = tuple(parse_field(field) for field in node["fields"])
                return DataType(root=TypeRoot.ROW, nullable=nullable, fields=fields)
    except KeyError as missing:
        raise CorruptMetadata(f"A {keyword} type lacks {missing}: {node!r}.") from None
    raise UnsupportedFeature(f"Type {keyword} is not supported.", type=keyword)


def parse_field(node: Any) -> DataField:
    """Reads a field from a schema file. Raises `CorruptMetadata`."""
    try:
        return DataField(
            id=int(node["id"]),
            name=str(node["name"]),
            type=parse_type(node["type"]),
            description=node.get("description"),
            default_value=node.get("defaultValue"),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise CorruptMetadata(f"Not a field of a schema: {node!r}.") from None


def _parse_atomic(text: str) -> DataType:
    found = _ATOMIC.fullmatch(text)
    if not found:
        raise CorruptMetadata(f"Not a data type: {text!r}.")
    keyword = " ".join(found["name"].upper().split())
    if keyword in ("VARIANT", "BLOB", "VECTOR"):
        raise UnsupportedFeature(f"Type {keyword} is not supported.", type=keyword)
    if keyword == "DOUBLE PRECISION":
        keyword = "DOUBLE"
    zone = (found["zone"] or "").upper()
    name = _ALIASES.get(keyword, keyword)
    if name == "TIMESTAMP" and "LOCAL" in zone:
        name = "TIMESTAMP_LTZ"
    try:
        root = TypeRoot(name)
    except ValueError:
        raise CorruptMetadata(f"Not a data type: {text!r}.") from None
    precision = _DEFAULT_PRECISION.get(root, 0)
    if keyword in ("STRING", "BYTES"):
        precision = MAX_LENGTH
    elif found["p"] is not None:
        precision = int(found["p"])
    nullable = found["null"] is None or found["null"].upper() == "NULL"
    made = DataType(root=root, nullable=nullable, precision=precision, scale=int(found["s"] or 0))
    if root is TypeRoot.DECIMAL and not (1 <= made.precision <= 38 and made.scale <= made.precision):
        raise CorruptMetadata(f"Not a decimal type: {text!r}.")
    if root in _WITH_PRECISION and made.precision > 9:
        raise CorruptMetadata(f"A precision is 0 to 9, not {made.precision}: {text!r}.")
    return made


def _parse_sql_nested(keyword: str, inner: str, null: str | None) -> DataType:
    root = TypeRoot(keyword.upper())
    nullable = null is None or null.upper() == "NULL"
    parts = _split_top_level(inner)
    if root is TypeRoot.ROW:
        named = [part.strip().split(None, 1) for part in parts]
        if any(len(pair) != 2 for pair in named):
            raise CorruptMetadata(f"Not the fields of a ROW: {inner!r}.")
        fields = tuple(
            DataField(id=i, name=name.strip("`"), type=parse_type(text))
            for i, (name, text) in enumerate(named)
        )
        return DataType(root=root, nullable=nullable, fields=fields)
    if len(parts) != (2 if root is TypeRoot.MAP else 1):
        raise CorruptMetadata(f"Not the parameters of {root.value}: {inner!r}.")
    key = parse_type(parts[0]) if root is TypeRoot.MAP else None
    return DataType(root=root, nullable=nullable, key=key, element=parse_type(parts[-1]))


def _split_top_level(text: str) -> list[str]:
    """Splits at the commas that are outside all brackets."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def arrow_type(type_: DataType) -> pa.DataType:
    """The type in memory: the Arrow type of its columns (format.md §2.5)."""
    match type_.root:
        case TypeRoot.DECIMAL:
            return pa.decimal128(type_.precision, type_.scale)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            unit = "ms" if type_.precision <= 3 else "us" if type_.precision <= 6 else "ns"
            return pa.timestamp(unit, tz="UTC" if type_.root is TypeRoot.TIMESTAMP_LTZ else None)
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return pa.list_(_arrow_field("element", type_.element))
        case TypeRoot.MAP | TypeRoot.MULTISET:
            key = type_.key or type_.element
            value = type_.element if type_.key else DataType(root=TypeRoot.INT, nullable=False)
            assert key is not None and value is not None
            return pa.map_(_arrow_field("key", key.with_nullable(False)), _arrow_field("value", value))
        case TypeRoot.ROW:
            return pa.struct([_arrow_field(field.name, field.type) for field in type_.fields])
        case root:
            return _PLAIN[root]


def _arrow_field(name: str, type_: DataType) -> pa.Field:
    return pa.field(name, arrow_type(type_), nullable=type_.nullable)


def from_arrow(type_: pa.DataType, nullable: bool = True) -> DataType:
    """The Paimon type that a new table gets for an Arrow column (format.md §2.5).

    Raises `UnsupportedFeature` for Arrow types without a counterpart (unsigned integers, intervals, …).
    """

    def made(root: TypeRoot, precision: int = 0, scale: int = 0) -> DataType:
        return DataType(root=root, nullable=nullable, precision=precision, scale=scale)

    for root, plain in _PLAIN.items():
        if root not in _WITH_LENGTH and root is not TypeRoot.TIME and type_.equals(plain):
            return made(root)
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return made(TypeRoot.DECIMAL, type_.precision, type_.scale)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return made(TypeRoot.VARCHAR, MAX_LENGTH)
    if pa.types.is_fixed_size_binary(type_):
        return made(TypeRoot.BINARY, type_.byte_width)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return made(TypeRoot.VARBINARY, MAX_LENGTH)
    if pa.types.is_time(type_):
        return made(TypeRoot.TIME, 0)
    if pa.types.is_timestamp(type_):
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[type_.unit]
        return made(TypeRoot.TIMESTAMP_LTZ if type_.tz else TypeRoot.TIMESTAMP, precision)
    if pa.types.is_dictionary(type_):
        return from_arrow(type_.value_type, nullable)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        element = from_arrow(type_.value_field.type, type_.value_field.nullable)
        return DataType(root=TypeRoot.ARRAY, nullable=nullable, element=element)
    if pa.types.is_map(type_):
        return DataType(
            root=TypeRoot.MAP,
            nullable=nullable,
            key=from_arrow(type_.key_type, False),
            element=from_arrow(type_.item_type, type_.item_field.nullable),
        )
    if pa.types.is_struct(type_):
        fields = tuple(
            DataField(id=i, name=type_[i].name, type=from_arrow(type_[i].type, type_[i].nullable))
            for i in range(type_.num_fields)
        )
        return DataType(root=TypeRoot.ROW, nullable=nullable, fields=fields)
    raise UnsupportedFeature(f"Arrow type {type_} has no Paimon type.", type=str(type_))
