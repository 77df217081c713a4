"""Paimon's data types: their text and JSON forms, and their Arrow types (format.md §2.4, §2.5).
This module can parse every type of the format. The writer decides which types can be *written*
(`write/conform.py`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from paimon_stream.format.json_text import integer, optional_text
from paimon_stream.format.unknown_fields import UnknownMembers, members, unknown_members

MAX_LENGTH: Final = 2**31 - 1
"""The length of a STRING, which is VARCHAR(2147483647), and of BYTES."""


TypeRoot = Enum(
    "TypeRoot",
    "BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL CHAR VARCHAR BINARY VARBINARY "
    "DATE TIME TIMESTAMP TIMESTAMP_LTZ ARRAY MAP MULTISET ROW",
)
"""The kinds of types; the name is the keyword of the canonical text."""

PLAIN: Final = {
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
"""The Arrow types of the types that have one, whatever their precision."""

_WITH_LENGTH: Final = {TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY}
_NAMES_OF_LONGEST: Final = {TypeRoot.VARCHAR: "STRING", TypeRoot.VARBINARY: "BYTES"}
_WITH_PRECISION: Final = {TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
_NESTED: Final = {TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW}
_NESTED_KEYWORDS: Final = {root.name for root in _NESTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """A data type of Paimon.

    Attributes:
        root: the kind of type.
        nullable: whether values may be NULL.
        precision: the precision of DECIMAL, TIME and timestamps; the length of CHAR, VARCHAR,
            BINARY and VARBINARY.
        scale: the scale of DECIMAL.
        key: the type of the keys of a MAP.
        element: the type of the elements of an ARRAY or a MULTISET, and of the values of a MAP.
        fields: the members of a ROW.
        unknown: the other members of a nested type's JSON object. Types that differ only in these
            members are equal.
    """

    root: TypeRoot
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    key: "DataType | None" = None
    element: "DataType | None" = None
    fields: "tuple[DataField, ...]" = ()
    unknown: UnknownMembers = field(default=(), compare=False)

    @property
    def is_nested(self) -> bool:
        """True for ARRAY, MAP, MULTISET and ROW."""
        return self.root in _NESTED

    @property
    def is_float(self) -> bool:
        """True for FLOAT and DOUBLE."""
        return self.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE)

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

    @property
    def entry(self) -> "tuple[DataType, DataType]":
        """The types of the keys and the values of a MAP. A MULTISET is a map from its elements to
        counts.
        """
        assert self.element is not None
        return (self.element, _COUNT) if self.key is None else (self.key, self.element)

    @property
    def items(self) -> "DataType":
        """The type of the elements of an ARRAY."""
        assert self.element is not None
        return self.element

    def with_nullable(self, nullable: bool) -> "DataType":
        """This type, nullable or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def to_json(self) -> Any:
        """The form of the type in a schema file: a string for an atomic type, an object for a
        nested one.
        """
        suffix = "" if self.nullable else " NOT NULL"
        if not self.is_nested:
            return self._text() + suffix
        node: dict[str, Any] = {"type": self.root.name + suffix}
        if self.key is not None:
            node["key"] = self.key.to_json()
        if self.element is not None:
            name = "value" if self.root is TypeRoot.MAP else "element"
            node[name] = self.element.to_json()
        if self.root is TypeRoot.ROW:
            node["fields"] = [member.to_json() for member in self.fields]
        # `unknown` has what a later release wrote under this key, and not the fields of a ROW.
        return node | members(self.unknown)

    def _text(self) -> str:
        name = self.root.name
        if self.precision == MAX_LENGTH and self.root in _NAMES_OF_LONGEST:
            return _NAMES_OF_LONGEST[self.root]
        if self.root is TypeRoot.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.root is TypeRoot.TIMESTAMP_LTZ:
            return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
        if self.root in _WITH_LENGTH or self.root in _WITH_PRECISION:
            return f"{name}({self.precision})"
        return name

    def __str__(self) -> str:
        """The type as SQL text, in the form in which users write it."""
        suffix = "" if self.nullable else " NOT NULL"
        match self.root:
            case TypeRoot.ARRAY | TypeRoot.MULTISET:
                return f"{self.root.name}<{self.element}>{suffix}"
            case TypeRoot.MAP:
                return f"MAP<{self.key}, {self.element}>{suffix}"
            case TypeRoot.ROW:
                inner = ", ".join(f"{field.name} {field.type}" for field in self.fields)
                return f"ROW<{inner}>{suffix}"
            case _:
                return self._text() + suffix


_COUNT: Final = DataType(root=TypeRoot.INT, nullable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A column, or a member of a ROW.

    Attributes:
        id: the id of the column, which a rename does not change.
        name: the present name of the column.
        type: the type of the column.
        description: a text about the column, for people.
        default_value: the value, as text, that is written in place of NULL.
        unknown: the other members of its JSON object. Columns that differ only in these members are
            equal.
    """

    id: int
    name: str
    type: "DataType"
    description: str | None = None
    default_value: str | None = None
    unknown: UnknownMembers = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """The form of the column in a schema file."""
        node: dict[str, Any] = {"id": self.id, "name": self.name, "type": self.type.to_json()}
        if self.description is not None:
            node["description"] = self.description
        if self.default_value is not None:
            node["defaultValue"] = self.default_value
        return node | members(self.unknown)


DEEPEST: Final = 100
"""How many types a type may hold inside one another. Paimon sets no limit, and no table comes near
this one; without it, a type of a few kilobytes would exhaust the stack.
"""

_KEYS_OF_TYPE: Final = ("type", "fields", "key", "value", "element")
_KEYS_OF_FIELD: Final = ("id", "name", "type", "description", "defaultValue")
_SHORT: Final = 40
_ALIASES: Final = {
    "INTEGER": "INT",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "STRING": "VARCHAR",
    "BYTES": "VARBINARY",
    "DOUBLE PRECISION": "DOUBLE",
}
_DEFAULT_PRECISION: Final = {
    **dict.fromkeys(_WITH_LENGTH, 1),
    TypeRoot.DECIMAL: 10,
    **dict.fromkeys((TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ), 6),
}


def parse_type(node: Any, depth: int = 0) -> "DataType":
    """Reads a type from a schema file or from a user's SQL text.

    Args:
        node: a string, or the JSON object of a nested type.
        depth: the number of types around this type.

    Raises:
        UnsupportedFeature: the type is VARIANT, BLOB or VECTOR.
        CorruptMetadata: the value is not a type, or types are nested more than `DEEPEST` deep.
    """
    _check_depth(depth)
    if isinstance(node, str):
        return _of_short_text(node) if len(node) <= _SHORT else _SqlType(node).parsed(depth)
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise CorruptMetadata(f"Not a data type: {node!r:.200}.")
    keyword, _, suffix = node["type"].strip().upper().partition(" ")
    nullable = suffix.split() != ["NOT", "NULL"]
    if keyword not in _NESTED_KEYWORDS:
        raise UnsupportedFeature(f"Type {keyword:.80} is not supported.", type=keyword)
    root = TypeRoot[keyword]
    key: DataType | None = None
    element: DataType | None = None
    fields: tuple[DataField, ...] = ()
    try:
        if root is TypeRoot.ROW:
            fields = tuple(parse_field(field, depth + 1) for field in node["fields"])
        elif root is TypeRoot.MAP:
            key = parse_type(node["key"], depth + 1)
            element = parse_type(node["value"], depth + 1)
        else:
            element = parse_type(node["element"], depth + 1)
    except KeyError as missing_key:
        raise CorruptMetadata(f"A {keyword} type lacks {missing_key}: {node!r:.200}.") from None
    return DataType(
        root=root,
        nullable=nullable,
        key=key,
        element=element,
        fields=fields,
        unknown=unknown_members(node, _KEYS_OF_TYPE),
    )


def parse_field(node: Any, depth: int = 0) -> "DataField":
    """Reads a field from a schema file. `depth` is the number of types around the field. Raises
    what `parse_type` raises.
    """
    try:
        return DataField(
            id=integer(node["id"]),
            name=str(node["name"]),
            type=parse_type(node["type"], depth),
            description=optional_text(node.get("description")),
            default_value=optional_text(node.get("defaultValue")),
            unknown=unknown_members(node, _KEYS_OF_FIELD),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise CorruptMetadata(f"Not a field of a schema: {node!r:.200}.") from None


@lru_cache(maxsize=1024)
def _of_short_text(sql: str) -> "DataType":
    """The type that a text names. The text is too short for deep nesting. Results are cached,
    because nearly every column has one of a few types.
    """
    return _SqlType(sql).parsed(depth=0)


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise CorruptMetadata(f"A type is nested more than {DEEPEST} deep.")


_NOT_NULL: Final = r"(?:\s*(NOT\s+)?NULL\b)?"
_NUMBERS: Final = r"(?:\s*\(\s*([0-9]{1,10})\s*(?:,\s*([0-9]{1,10})\s*)?\))?"
_ZONE: Final = r"(?:\s*(WITH\s+LOCAL|WITHOUT)\s+TIME\s+ZONE\b)?"
_ATOMIC: Final = re.compile(
    rf"\s*(DOUBLE\s+PRECISION\b|[^\s<>(),`]+){_NUMBERS}{_ZONE}{_NOT_NULL}", re.IGNORECASE
)
_OPENED: Final = re.compile(r"\s*(ARRAY|MAP|MULTISET|ROW)\s*<", re.IGNORECASE)
_CLOSED: Final = re.compile(rf"\s*>{_NOT_NULL}", re.IGNORECASE)
_COMMA: Final = re.compile(r"\s*,")
_NAME: Final = re.compile(r"\s*(`[^`]*`|[^\s<>(),`]+)")


class _SqlType:
    """Parses the text of a type, part by part."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._at = 0

    def parsed(self, depth: int) -> "DataType":
        """The type that the whole text names. `depth` is the number of types around this type."""
        type_ = self._type(depth)
        if self._sql[self._at :].strip():
            raise self._not_a_type()
        return type_

    def _type(self, depth: int) -> "DataType":
        _check_depth(depth)
        opening = self._next(_OPENED)
        if opening:
            word = opening[1]
            return self._nested(TypeRoot[word.upper()], depth + 1)
        return self._atomic(self._expect(_ATOMIC))

    def _atomic(self, part: re.Match[str]) -> "DataType":
        """The type that a match of `_ATOMIC` names."""
        words, precision_digits, scale_digits, zone, not_null = part.groups()
        keyword = " ".join(words.upper().split())
        numbers = [int(digits) for digits in (precision_digits, scale_digits) if digits]
        if max(numbers, default=0) > MAX_LENGTH:
            raise self._not_a_type()
        if keyword in ("VARIANT", "BLOB", "VECTOR"):
            raise UnsupportedFeature(f"Type {keyword} is not supported.", type=keyword)
        root = self._atomic_root(keyword, zone)
        scale = numbers[1] if len(numbers) > 1 else 0
        type_ = DataType(
            root=root,
            nullable=not_null is None,
            precision=_precision(root, keyword, numbers),
            scale=scale,
        )
        is_decimal = 1 <= type_.precision <= 38 and type_.scale <= type_.precision
        if root is TypeRoot.DECIMAL and not is_decimal:
            raise CorruptMetadata(f"Not a decimal type: {self._sql!r:.200}.")
        if root in _WITH_PRECISION and type_.precision > 9:
            raise CorruptMetadata(
                f"A precision is 0 to 9, not {type_.precision}: {self._sql!r:.200}."
            )
        return type_

    def _atomic_root(self, keyword: str, zone: str | None) -> TypeRoot:
        """The kind of an atomic type. `zone` is the text before `TIME ZONE`."""
        name = _ALIASES.get(keyword, keyword)
        if name == "TIMESTAMP" and zone is not None and zone.upper() != "WITHOUT":
            name = "TIMESTAMP_LTZ"
        if name not in TypeRoot.__members__ or name in _NESTED_KEYWORDS:
            raise self._not_a_type()
        return TypeRoot[name]

    def _nested(self, root: TypeRoot, depth: int) -> "DataType":
        key: DataType | None = None
        element: DataType | None = None
        fields: list[DataField] = []
        if root is TypeRoot.ROW:
            while not fields or self._next(_COMMA):
                fields.append(
                    DataField(
                        id=len(fields),
                        name=self._expect(_NAME)[1].strip("`"),
                        type=self._type(depth),
                    )
                )
        else:
            if root is TypeRoot.MAP:
                key = self._type(depth)
                self._expect(_COMMA)
            element = self._type(depth)
        not_null = self._expect(_CLOSED)[1]
        return DataType(
            root=root, nullable=not_null is None, key=key, element=element, fields=tuple(fields)
        )

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of the pattern at the current position, which is then skipped; None if there is
        no match.
        """
        part = pattern.match(self._sql, self._at)
        if part:
            self._at = part.end()
        return part

    def _expect(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """The match of the pattern at the current position, which is then skipped. Raises an error
        if there is no match.
        """
        part = self._next(pattern)
        if part is None:
            raise self._not_a_type()
        return part

    def _not_a_type(self) -> CorruptMetadata:
        return CorruptMetadata(f"Not a data type: {self._sql!r:.200}.")


def _precision(root: TypeRoot, keyword: str, numbers: list[int]) -> int:
    """The precision of an atomic type. `numbers` are the numbers in parentheses after its name."""
    if keyword in ("STRING", "BYTES"):
        return MAX_LENGTH
    return numbers[0] if numbers else _DEFAULT_PRECISION.get(root, 0)


def _arrow_field(name: str, type_: "DataType") -> pa.Field:
    return pa.field(name, arrow_type(type_), nullable=type_.nullable)


def _timestamp_unit(precision: int) -> str:
    if precision <= 3:
        return "ms"
    return "us" if precision <= 6 else "ns"


def arrow_type(
    type_: "DataType", inner: "Callable[[str, DataType], pa.Field]" = _arrow_field
) -> pa.DataType:
    """The Arrow type that a Paimon type has in memory (format.md §2.5).

    Args:
        type_: the Paimon type.
        inner: makes the Arrow field of a part of a nested type from the part's name and type.
    """
    match type_.root:
        case TypeRoot.DECIMAL:
            return pa.decimal128(type_.precision, type_.scale)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            zone = "UTC" if type_.root is TypeRoot.TIMESTAMP_LTZ else None
            return pa.timestamp(_timestamp_unit(type_.precision), tz=zone)
        case TypeRoot.ARRAY:
            return pa.list_(inner("element", type_.items))
        case TypeRoot.MAP | TypeRoot.MULTISET:
            key, value = type_.entry
            return pa.map_(inner("key", key.with_nullable(False)), inner("value", value))
        case TypeRoot.ROW:
            return pa.struct([inner(field.name, field.type) for field in type_.fields])
        case root:
            return PLAIN[root]
