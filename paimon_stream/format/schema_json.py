"""The value of a schema file, and the conversion to and from JSON (format.md §2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from paimon_stream.errors import CorruptMetadata, UnknownVersion
from paimon_stream.format.json_text import (
    indented,
    integer,
    optional_text,
    parse_json,
    understanding,
)
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_field
from paimon_stream.format.unknown_fields import UnknownMembers, members, unknown_members
from paimon_stream.reports import html_table

VERSION: Final = 3
_KNOWN: Final = frozenset(
    (
        "version",
        "id",
        "fields",
        "highestFieldId",
        "partitionKeys",
        "primaryKeys",
        "options",
        "comment",
        "timeMillis",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One version of a table's schema.

    Attributes:
        id: the id of the version.
        fields: the columns.
        highest_field_id: the highest id that a column has or had.
        partition_keys: the names of the partition columns.
        primary_keys: the names of the columns of the primary key.
        options: the table's options, as stored.
        comment: a text about the table, for people.
        time_millis: when the version was made (milliseconds since 1970).
        version: the version of the file's format.
        unknown: the fields of the file that this release does not know.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    comment: str | None = None
    time_millis: int = 0
    version: int = VERSION
    unknown: UnknownMembers = ()
    by_name: Mapping[str, DataField] = field(init=False, repr=False, compare=False)
    """The columns by their names: a table may have thousands."""

    def __post_init__(self) -> None:
        by_name = {column.name: column for column in reversed(self.fields)}
        object.__setattr__(self, "by_name", MappingProxyType(by_name))

    def __reduce__(self) -> tuple[Any, ...]:
        # The options are a read-only view, which cannot be pickled. So the schema is pickled as
        # JSON.
        return decode_schema, (encode_schema(self), "a pickled schema")

    def __repr__(self) -> str:
        """The id and the columns, in one line."""
        columns = ", ".join(f"{column.name} {column.type}" for column in self.fields)
        return f"TableSchema({self.id}: {columns})"

    def _repr_html_(self) -> str:
        rows = [(column.name, column.type, column.description) for column in self.fields]
        return html_table(f"Schema {self.id}", ("Column", "Type", "Description"), rows)

    @property
    def field_names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.fields)

    def field(self, name: str) -> DataField:
        """The column of that name. Raises `KeyError`."""
        return self.by_name[name]

    @property
    def without_defaults(self) -> "TableSchema":
        """The same version without the defaults of columns, for rows that are not new. A default
        applies only to new rows.
        """
        fields = tuple(replace(column, default_value=None) for column in self.fields)
        return replace(self, fields=fields)

    @property
    def partition_fields(self) -> tuple[DataField, ...]:
        """The partition columns in partition key order."""
        return tuple(self.field(name) for name in self.partition_keys)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The columns of the primary key that are not partition columns, in primary key order
        (format.md §2.2).
        """
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """The columns of the bucket hash (format.md §6.2): those of `bucket-key`, *not* trimmed, or
        else those of the trimmed primary key.
        """
        bucket_key = self.options.get("bucket-key")
        return tuple(bucket_key.split(",")) if bucket_key else self.trimmed_primary_keys


def encode_schema(schema: TableSchema) -> bytes:
    """The content of a schema file, in UTF-8 JSON. Unknown fields come last."""
    node: dict[str, Any] = {
        "version": schema.version,
        "id": schema.id,
        "fields": [column.to_json() for column in schema.fields],
        "highestFieldId": schema.highest_field_id,
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
    }
    if schema.comment is not None:
        node["comment"] = schema.comment
    node["timeMillis"] = schema.time_millis
    node |= members(schema.unknown)
    return indented(node, 2, " : ").encode()


def decode_schema(data: bytes, path: str) -> TableSchema:
    """Reads a schema file. Unknown keys are kept. A missing `bucket` means 1 in version 1 and
    below. A missing `file.format` means orc in version 2 and below.

    Args:
        data: the file's content.
        path: the file, for messages.

    Raises:
        CorruptMetadata: the content is not a schema.
        UnknownVersion: a newer release wrote the file.
        UnsupportedFeature: a type cannot be read. The message does not name the file.
    """
    with understanding(path, len(data), "a schema file", "Restore it from a backup."):
        node = parse_json(data)
        version = integer(node.get("version", 1))
        options = {str(key): str(value) for key, value in (node.get("options") or {}).items()}
        if version <= 1:
            options.setdefault("bucket", "1")
        if version <= 2:
            options.setdefault("file.format", "orc")
        schema = TableSchema(
            id=integer(node["id"]),
            fields=tuple(parse_field(column) for column in node["fields"]),
            highest_field_id=integer(node["highestFieldId"]),
            partition_keys=tuple(map(str, node.get("partitionKeys") or ())),
            primary_keys=tuple(map(str, node.get("primaryKeys") or ())),
            options=MappingProxyType(options),
            comment=optional_text(node.get("comment")),
            time_millis=integer(node.get("timeMillis") or 0),
            version=version,
            unknown=unknown_members(node, _KNOWN),
        )
    if version > VERSION:
        raise UnknownVersion(
            f"{path} is of version {version}; this release reads up to {VERSION}. Upgrade it.",
            path=path,
        )
    missing = set(schema.partition_keys + schema.primary_keys) - set(schema.field_names)
    if missing:
        raise CorruptMetadata(
            f"{path} names keys that are not columns: {sorted(missing)}.", path=path
        )
    return schema


def reassign_ids(
    fields: tuple[DataField, ...], first: int = 0
) -> tuple[tuple[DataField, ...], int]:
    """The columns with ids as Java numbers them, and the highest id. A column gets its id before
    the fields inside its type, which are numbered depth first. In a ROW, the fields inside a
    member's type are numbered before the member itself (format.md §2.3).

    Args:
        fields: the columns.
        first: the lowest id.
    """
    ids = count(first)

    def renumber(type_: DataType) -> DataType:
        if type_.root is TypeRoot.ROW:
            # Arguments are evaluated from left to right, so the fields inside the member's type
            # take their ids first.
            members = [
                replace(member, type=renumber(member.type), id=next(ids)) for member in type_.fields
            ]
            return replace(type_, fields=tuple(members))
        key = renumber(type_.key) if type_.key else None
        element = renumber(type_.element) if type_.element else None
        return replace(type_, key=key, element=element) if type_.is_nested else type_

    numbered = [replace(column, id=next(ids), type=renumber(column.type)) for column in fields]
    return tuple(numbered), next(ids) - 1
