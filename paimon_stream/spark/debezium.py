"""Debezium's envelopes as JSON, with schemas and without. Values of envelopes with a schema are decoded
by the logical type that it gives them. Where there is none, the connector's modes say how values are
encoded.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame

from paimon_stream.format.types import DataField
from paimon_stream.spark.envelopes import (
    ITEMS,
    ROW,
    Cures,
    Encoding,
    Envelope,
    Problems,
    computed_once,
    is_ambiguous,
    literal,
    problem_of_key,
    problems_of_text,
    strict_json,
    with_values,
)

_MEMBERS: Final = {
    "op": "string",
    "before": ROW,
    "after": ROW,
    "source": ROW,
    "ts_ms": "string",
    "ts_us": "string",
    "ts_ns": "string",
}
_PAYLOAD: Final = ", ".join(f"{name}: {type_}" for name, type_ in _MEMBERS.items())
_TYPED_FIELD: Final = (
    "struct<field: string, type: string, name: string, parameters: map<string, string>, "
    "items: struct<type: string, name: string>>"
)
_SCHEMA: Final = f"struct<fields: array<struct<field: string, fields: array<{_TYPED_FIELD}>>>>"
_ENVELOPE: Final = f"struct<schema: {_SCHEMA}, payload: struct<{_PAYLOAD}>, {_PAYLOAD}>"
_OPERATIONS: Final = ("c", "u", "d", "r")
_FOR_COLUMNS: Final = ("op", "ts_ms", "ts_us", "ts_ns")


@dataclass(frozen=True, kw_only=True)
class DebeziumEnvelope(Envelope):
    """The envelope of Debezium.

    Attributes:
        unavailable_value_placeholder: the connector's option `unavailable.value.placeholder`.
        truncates_are_ignored: whether events of TRUNCATE are left out.
    """

    encoding: Encoding = field(default_factory=Encoding)
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    truncates_are_ignored: bool = False
    columns = ("key", "value")
    cures = Cures(
        order="Fill the table's sequence.field from a member that each event has, such as source.ts_us; or set "
        "REPLICA IDENTITY FULL, which sends all columns of a deleted row.",
        null="set REPLICA IDENTITY FULL for the source table.",
        misfit="Give the column the type that docs/cdc.md names for it; for envelopes without a schema, name the "
        "modes of the connector, too.",
    )
    members = f"{', '.join(_FOR_COLUMNS)} or a member such as source.lsn"

    def rows(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Adds the row of each event. A large value that an update did not send is taken from the
        row before it, if that has it.
        """
        absent = self._is_unavailable("a")
        old = f"map_zip_with(_cdc_after, _cdc_before, (k, a, b) -> if({absent}, coalesce(b, a), a))"
        row = (
            "case when _cdc_op = 'd' then _cdc_before "
            f"when _cdc_op = 'u' and exists(map_values(_cdc_after), a -> {absent}) "
            f"then coalesce({old}, _cdc_after) else _cdc_after end"
        )
        rows = _parsed(frame).selectExpr("*", computed_once({"_cdc_row": row}))
        if self.truncates_are_ignored:
            rows = rows.where(f"_cdc_op is null or _cdc_op <> 't' or {is_ambiguous(_objects())}")
        return rows

    def problems(self, keys: Sequence[str]) -> Problems:
        """Why a record has no row."""
        return [
            *problems_of_text(self.columns, _objects()),
            *_problems_of_envelope(),
            *_problems_of_key(keys),
        ]

    def member(self, path: str) -> str:
        """The expression of a member of the envelope, or of its `source`."""
        if path.startswith("source."):
            return f"try_element_at(_cdc_source, {literal(path.removeprefix('source.'))})"
        return f"_cdc_{path}"

    def has_member(self, path: str) -> bool:
        """Whether envelopes may have this member."""
        prefix, _, name = path.rpartition(".")
        return path in _FOR_COLUMNS or (prefix == "source" and name.isidentifier())

    def doubts(self, column: DataField, text: str) -> Problems:
        """A large value that the database did not send, because it was not changed."""
        return [
            (
                self._is_unavailable(text),
                literal(
                    f"the database did not send the unchanged large value of {column.name}. Set REPLICA IDENTITY "
                    "FULL for the source table, keep this event beside (bad_events), and update the row there "
                    "once more."
                ),
            )
        ]

    def _is_unavailable(self, value: str) -> str:
        """A condition on a value: it only says that the database did not send the value. The forms
        are those of texts, of bytes in each `binary.handling.mode`, and of arrays.
        """
        placeholder = self.unavailable_value_placeholder
        code = placeholder.encode()
        forms = [
            placeholder,
            base64.b64encode(code).decode(),
            base64.urlsafe_b64encode(code).decode(),
            code.hex(),
            code.hex().upper(),
            "[" + ",".join(map(str, code)) + "]",
            f'["{placeholder}"]',
            f'{{"{placeholder}":"{placeholder}"}}',
        ]
        return f"coalesce({value} in ({', '.join(map(literal, dict.fromkeys(forms)))}), false)"


def _parsed(frame: DataFrame) -> DataFrame:
    """The members of the envelopes and of the keys. An envelope with a schema has them in its
    `payload`.
    """
    of_row = "filter(_cdc_e.schema.fields, part -> part.field in ('after', 'before') and part.fields is not null)"
    typed = f"filter(try_element_at({of_row}, 1).fields, f -> f.field is not null)"
    of_items = (
        f"if(f.type = 'array', concat('{ITEMS}', coalesce(f.items.name, f.items.type)), null)"
    )
    kind = f"coalesce(f.name, {of_items}, f.type)"
    entry = f"struct(f.field, struct({kind} as kind, f.parameters['scale'] as scale))"
    names = "transform(typed, f -> f.field)"
    types = with_values(
        {"typed": typed},
        f"if(size(array_distinct({names})) = size(typed), map_from_entries(transform(typed, f -> {entry})), null)",
    )
    key = with_values(
        {"of_key": "_cdc_key_text"},
        "if(map_contains_key(of_key, 'schema') and map_contains_key(of_key, 'payload'), "
        f"from_json(of_key['payload'], '{ROW}'), of_key)",
    )
    parsed = {
        "_cdc_e": strict_json("value", _ENVELOPE),
        "_cdc_key_text": strict_json("key", ROW),
    }
    return frame.selectExpr("*", computed_once(parsed)).selectExpr(
        "*",
        *(f"coalesce(_cdc_e.payload.{name}, _cdc_e.{name}) as _cdc_{name}" for name in _MEMBERS),
        "_cdc_e.payload is not null as _cdc_has_payload",
        f"transform({typed}, f -> f.field) as _cdc_typed",
        f"{types} as _cdc_types",
        f"{key} as _cdc_key",
    )


def _objects() -> str:
    """An expression: for each object of a record, the names of its members."""
    text = "cast(value as string)"
    names = (
        f"json_object_keys({text})",
        f"if(_cdc_has_payload, json_object_keys(get_json_object({text}, '$.payload')), null)",
        "_cdc_typed",
        *(f"map_keys(_cdc_{name})" for name in ("before", "after", "source", "key_text", "key")),
    )
    return f"array({', '.join(names)})"


def _problems_of_envelope() -> Problems:
    return [
        (
            "_cdc_e is null",
            literal(
                "its value is no JSON of an envelope. Let the connector write JSON "
                "(value.converter = org.apache.kafka.connect.json.JsonConverter), or keep such records "
                "beside (bad_events)."
            ),
        ),
        (
            "_cdc_op is null",
            literal(
                "its value has no 'op', so it is no envelope of Debezium. Take the transform "
                "ExtractNewRecordState out of the connector, and read topics of tables only."
            ),
        ),
        (
            "_cdc_op = 't'",
            literal(
                "it is a TRUNCATE of the source, which has no rows. Empty the table by an overwrite if that is "
                "wanted, then go on with truncates='ignore'. Debezium leaves such events out with "
                "skipped.operations = t."
            ),
        ),
        (
            f"_cdc_op not in ({', '.join(map(literal, _OPERATIONS))})",
            "concat('its op is \\'', left(_cdc_op, 20), '\\', which is none of c, u, d and r. Read topics of "
            "tables only, or keep such records beside (bad_events).')",
        ),
    ]


def _problems_of_key(keys: Sequence[str]) -> Problems:
    return [
        (
            "key is null",
            literal(
                "it has no key, so the order of the changes of a row is not known. Give the source table a "
                "primary key, or set message.key.columns of the connector."
            ),
        ),
        (
            "_cdc_key is null",
            literal(
                "its key is no JSON object. Let the connector write JSON "
                "(key.converter = org.apache.kafka.connect.json.JsonConverter)."
            ),
        ),
        problem_of_key(
            "map_keys(_cdc_key)",
            keys,
            "Make the table with the primary key of the source, or set message.key.columns of the connector.",
        ),
        (
            "_cdc_row is null",
            "concat('its op is ', _cdc_op, ', but it has no row in \\'', if(_cdc_op = 'd', 'before', 'after'), "
            "'\\'. Set REPLICA IDENTITY DEFAULT or FULL for the source table.')",
        ),
    ]
