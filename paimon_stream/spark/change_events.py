"""Turns change events, as JSON in Kafka's records, into rows for a table with a primary key. Each row
has the letter of its operation. An event that cannot be turned into a row gets a text that says why
in place of the letter. The sink fails on that text (`write/row_kinds.py`), so no event is skipped in
silence.

An `Envelope` finds the rows in the records (`debezium.py`, `mysql_envelopes.py`). Here their values
are decoded. All is done by expressions of Spark, which keep the order of the records.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot
from paimon_stream.spark.envelopes import (
    ITEMS,
    Encoding,
    Envelope,
    Problems,
    computed_once,
    escaped,
    literal,
    with_values,
)
from paimon_stream.spark.types import spark_type
from paimon_stream.write.row_kinds import REFUSED

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_BITS: Final = "io.debezium.data.Bits"
_ENCODED_AS_BYTES: Final = (_DECIMAL, _VARIABLE_DECIMAL, _BITS, "bytes")
_DEBEZIUM_TIME: Final = "io.debezium.time."
_CONNECT: Final = "org.apache.kafka.connect.data."
_ENCODED: Final = (
    *_ENCODED_AS_BYTES,
    *(f"{_DEBEZIUM_TIME}{name}" for name in ("Date", "Time", "MicroTime", "NanoTime")),
    *(f"{_DEBEZIUM_TIME}{name}" for name in ("Timestamp", "MicroTimestamp", "NanoTimestamp")),
    *(f"{_CONNECT}{name}" for name in ("Date", "Time", "Timestamp")),
)
"""Kinds whose text is no text for a reader, so they are not written to columns of STRING."""

_ISO_TIMES: Final = (f"{_DEBEZIUM_TIME}IsoTime", f"{_DEBEZIUM_TIME}ZonedTime", "string")

_UNITS: Final[Mapping[str, Mapping[int, str]]] = {
    "adaptive": {3: "", 6: "Micro", 9: "Nano"},
    "microseconds": {9: "Micro"},
    "nanoseconds": {9: "Nano"},
    "isostring": {9: "Iso"},
    "connect": {9: ""},
}
"""For each `time.precision.mode`, the prefix of the encoding by the most digits that a column has."""

_ISO_DATE: Final = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_MOMENT: Final = f"{_ISO_DATE}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}}0*)?)?"
"""Spark's casts take further forms, and drop what follows a date and digits behind microseconds."""

_BYTES_AS_CHARACTERS: Final = r"^[\x00-\xff]*\z"
"""Texts of Canal, each character of which is a byte."""

_LAST_MILLI_OF_DAY: Final = 86_399_999
_MICROS: Final = 6
"""The digits of a second in Spark."""

_MOST_SCALE: Final = 16_383
"""The largest scale of a number of PostgreSQL."""

_EXPONENTIAL: Final = "^-?[0-9][.]?[0-9]{0,16}[eE][+-]?[0-2]?[0-9]{1,2}$"
"""The texts with an exponent that differ as doubles if they differ at all."""

_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_FIRST_MICRO: Final = -62_135_596_800_000_000  # 0001-01-01
_LAST_MICRO: Final = 253_402_300_799_999_999  # 9999-12-31
_ELEMENTS: Final = {
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.BIGINT,
    TypeRoot.FLOAT,
    TypeRoot.DOUBLE,
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTarget:
    """What the rows are made for.

    Attributes:
        fields: the columns of the table.
        primary_keys: its primary key.
        sequence_fields: its columns that order the rows of a key.
        metadata: for some of the columns, the member of the envelope that fills them.
        operation_column: the name of the column for the operation.
        missing_are_null: whether a column that an event lacks is NULL.
        new_are_ignored: whether a column that the table lacks is left out.
    """

    fields: Sequence[DataField]
    primary_keys: Sequence[str]
    sequence_fields: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    operation_column: str = "op"
    missing_are_null: bool = False
    new_are_ignored: bool = False

    @property
    def columns(self) -> list[DataField]:
        """The columns that the events fill by their rows."""
        return [column for column in self.fields if column.name not in self.metadata]


def changes(frame: DataFrame, target: EventTarget, envelope: Envelope) -> DataFrame:
    """The rows of the events, each with its operation or with the reason why it has none."""
    judged = _judged(frame, target, envelope)
    reason = f"concat({literal(REFUSED)}, `_cdc_problem`)"
    operation = f"if(_cdc_problem is null, _cdc_op, {reason})"
    return judged.selectExpr(
        *(f"`_cdc_c{n}` as {_name(column.name)}" for n, column in enumerate(target.fields)),
        f"{operation} as {_name(target.operation_column)}",
    )


def accepted(frame: DataFrame, target: EventTarget, envelope: Envelope) -> DataFrame:
    """The rows of the events that can be turned into rows, each with its operation."""
    judged = _judged(frame, target, envelope).where("_cdc_problem is null")
    return judged.selectExpr(
        *(f"`_cdc_c{n}` as {_name(column.name)}" for n, column in enumerate(target.fields)),
        f"_cdc_op as {_name(target.operation_column)}",
    )


def refused(frame: DataFrame, target: EventTarget, envelope: Envelope) -> DataFrame:
    """The records whose events cannot be turned into rows, as they came, and the reasons."""
    judged = _judged(frame, target, envelope).where("_cdc_problem is not null")
    return judged.selectExpr(*map(_name, frame.columns), "_cdc_problem as problem")


def check_types(target: EventTarget) -> None:
    """Raises `UnsupportedFeature` for a column whose type no event can fill."""
    for column in target.columns:
        type_ = column.type
        if type_.root in (TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW) or (
            type_.root is TypeRoot.ARRAY and type_.items.root not in _ELEMENTS
        ):
            raise UnsupportedFeature(
                f"Column {column.name!r} is {type_}, which is not made of change events. Make it STRING: "
                "it then gets the text of the JSON.",
                column=column.name,
                type=str(type_),
            )


def _judged(frame: DataFrame, target: EventTarget, envelope: Envelope) -> DataFrame:
    """The frame with the columns of the table (`_cdc_c0` and so on), the operation, and the
    problem, which is NULL for a good event. Tombstones are left out.
    """
    rows = envelope.rows(frame.where("value is not null"), target.primary_keys)
    problem = _problem(frame.columns, target, envelope)
    return _decoded(rows, target, envelope).selectExpr(
        "*", computed_once({"_cdc_problem": problem})
    )


def _decoded(rows: DataFrame, target: EventTarget, envelope: Envelope) -> DataFrame:
    """Adds the columns of the table, decoded. A value that cannot be decoded is NULL in `_cdc_c`
    and has its text in `_cdc_t`.
    """
    texts = []
    values = []
    for n, column in enumerate(target.fields):
        if column.name in target.metadata:
            texts.append(f"{envelope.member(target.metadata[column.name])} as _cdc_t{n}")
            kind = "'string'"
        else:
            texts.append(f"{envelope.text_of(column)} as _cdc_t{n}")
            known = f"try_element_at(_cdc_types, {literal(column.name)})"
            kind = f"coalesce({known}.kind, {literal(_usual_kind(column.type, envelope.encoding))})"
            texts.append(f"{known}.scale as _cdc_s{n}")
        texts.append(f"{kind} as _cdc_k{n}")
        scale = "null" if column.name in target.metadata else f"_cdc_s{n}"
        value = _Value(
            text=f"_cdc_t{n}",
            kind=f"_cdc_k{n}",
            scale=scale,
            is_number=_is_number(f"_cdc_t{n}", column.name),
        )
        values.append(f"{_value(column.type, value, envelope.encoding)} as _cdc_c{n}")
    return rows.selectExpr("*", *texts).selectExpr("*", *values)


def _is_number(text: str, name: str) -> str:
    """A condition on a column's value: it is a number of JSON, not a text with the same digits. In
    a row that is parsed as a map they look the same.
    """
    member = f'\\Q{json.dumps(name, ensure_ascii=False)}\\E[^"0-9,]*:[^"0-9]*[0-9]'
    return f"{text} rlike '^-?[0-9]+$' and cast(value as string) rlike {literal(member)}"


@dataclass(frozen=True, slots=True)
class _Value:
    """Expressions: the text of a value, its kind, the scale of a decimal, and whether the value is
    a number of JSON.
    """

    text: str
    kind: str
    scale: str
    is_number: str


def _usual_kind(type_: DataType, encoding: Encoding) -> str:
    """The kind of values for a column of this type, in an envelope without a schema."""
    match type_.root:
        case TypeRoot.DECIMAL:
            return _DECIMAL if encoding.decimal_handling_mode == "precise" else "string"
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return "bytes" if encoding.binary_handling_mode == "bytes" else "string"
        case TypeRoot.DATE:
            return _DEBEZIUM_TIME + (
                "IsoDate" if encoding.time_precision_mode == "isostring" else "Date"
            )
        case TypeRoot.TIME if encoding.time_precision_mode == "adaptive_time_microseconds":
            return f"{_DEBEZIUM_TIME}MicroTime"
        case TypeRoot.TIME:
            return f"{_DEBEZIUM_TIME}{_unit(type_, encoding)}Time"
        case TypeRoot.TIMESTAMP:
            return f"{_DEBEZIUM_TIME}{_unit(type_, encoding)}Timestamp"
        case TypeRoot.TIMESTAMP_LTZ:
            return f"{_DEBEZIUM_TIME}ZonedTimestamp"
    return "string"


def _unit(type_: DataType, encoding: Encoding) -> str:
    mode = encoding.time_precision_mode
    units = _UNITS["adaptive" if mode == "adaptive_time_microseconds" else mode]
    return next(unit for digits, unit in units.items() if type_.precision <= digits)


def _value(type_: DataType, value: _Value, encoding: Encoding) -> str:
    """The expression of a column's value. It is NULL for a text that does not fit, and for a value
    that the sink would refuse as too long or too precise.
    """
    decoded = _of_root(type_, value, encoding)
    if (type_.is_string or type_.is_binary) and type_.precision < MAX_LENGTH:
        return f"if(length({decoded}) > {type_.precision}, null, {decoded})"
    if type_.is_timestamp and type_.precision < _MICROS:
        unit = f"{10**-type_.precision:.6f}"
        return with_values(
            {"moment": decoded}, f"if(extract(second from moment) % {unit} = 0, moment, null)"
        )
    return decoded


def _of_root(type_: DataType, value: _Value, encoding: Encoding) -> str:
    """The expression of a column's value, as long and as precise as it came."""
    spark = spark_type(type_).simpleString()
    match type_.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return f"if({value.kind} in ({', '.join(map(literal, _ENCODED))}), null, {value.text})"
        case TypeRoot.DECIMAL:
            return _decimal(type_, value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _binary(value, encoding.binary_handling_mode)
        case TypeRoot.DATE:
            iso = f"if({value.text} rlike '^{_ISO_DATE}Z?$', try_cast(left({value.text}, 10) as date), null)"
            number = f"try_cast({value.text} as int)"
            days = f"if({number} between {_FIRST_DAY} and {_LAST_DAY}, date_add(date'1970-01-01', {number}), null)"
            return (
                f"case when {value.kind} in ('{_DEBEZIUM_TIME}Date', '{_CONNECT}Date') then {days} "
                f"when {value.kind} in ('{_DEBEZIUM_TIME}IsoDate', 'string') then {iso} end"
            )
        case TypeRoot.TIME:
            return _time(value)
        case TypeRoot.TIMESTAMP:
            return _timestamp(value)
        case TypeRoot.TIMESTAMP_LTZ:
            zoned = f"{value.text} rlike '^{_ISO_MOMENT}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})$'"
            kinds = f"{value.kind} in ('{_DEBEZIUM_TIME}ZonedTimestamp', 'string')"
            return f"if({kinds} and {zoned}, try_cast({value.text} as timestamp), null)"
        case TypeRoot.ARRAY:
            return _array(type_, value)
    plain = f"try_cast({value.text} as {spark})"
    if type_.is_float:
        is_infinite = f"abs({plain}) = double('Infinity') and not {value.text} rlike '[iI]nf'"
        plain = f"if({is_infinite}, null, {plain})"
    return f"if({value.kind} in ({', '.join(map(literal, _ENCODED_AS_BYTES))}), null, {plain})"


def _decimal(type_: DataType, value: _Value) -> str:
    """A decimal of any kind. The bytes of a precise one are the digits without a point, as a
    number of two's complement of at most 16 bytes. Digits behind the scale of the column must be
    zeros.
    """
    wanted = f"decimal({type_.precision},{type_.scale})"
    exact = literal(f"^-?[0-9]+([.][0-9]{{0,{type_.scale}}}0*)?$")
    scale = f"coalesce({value.scale}, '{type_.scale}')"
    is_variable = f"startswith({value.text}, '{{')"
    precise = with_values(
        {
            "told": f"try_cast(if({is_variable}, get_json_object({value.text}, '$.scale'), {scale}) as int)",
            "s": f"if(told between 0 and {_MOST_SCALE}, told, null)",
            "code": "hex(try_to_binary("
            f"if({is_variable}, get_json_object({value.text}, '$.value'), {value.text}), 'base64'))",
            "minus": "code rlike '^[89A-F]'",
            "wide": "lpad(code, 32, if(minus, 'F', '0'))",
            "high": "cast(conv(left(wide, 16), 16, -10) as decimal(38,0))",
            "low": "cast(conv(right(wide, 16), 16, 10) as decimal(38,0))",
            "number": "try_add(try_multiply(high, cast(18446744073709551616 as decimal(20,0))), low)",
            "digits": "if(length(code) between 1 and 32, replace(cast(number as string), '-', ''), null)",
            "padded": "lpad(digits, greatest(length(digits), s + 1), '0')",
            "whole": "concat(if(minus, '-', ''), left(padded, length(padded) - s))",
            "plain": "if(s > 0, concat(whole, '.', right(padded, s)), whole)",
        },
        f"if(plain rlike {exact}, try_cast(plain as {wanted}), null)",
    )
    fits = f"try_cast({value.text} as {wanted})"
    is_same = f"cast({fits} as double) = try_cast({value.text} as double)"
    return (
        f"case when {value.kind} in ('{_DECIMAL}', '{_VARIABLE_DECIMAL}') "
        f"then if({value.is_number}, null, {precise}) "
        f"when {value.text} rlike {exact} or {value.text} rlike '{_EXPONENTIAL}' and {is_same} "
        f"then {fits} end"
    )


def _array(type_: DataType, value: _Value) -> str:
    """An array. An element that does not fit makes the whole of it not fit: `from_json` alone would
    put NULL in its place.
    """
    element = f"try_cast(part as {spark_type(type_.items).simpleString()})"
    is_text = type_.items.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)
    encoded = (f"{ITEMS}{kind}" for kind in (_ENCODED if is_text else _ENCODED_AS_BYTES))
    decoded = with_values(
        {"parts": f"from_json({value.text}, 'array<string>')"},
        f"if(exists(parts, part -> part is not null and {element} is null), null, "
        f"transform(parts, part -> {element}))",
    )
    return f"if({value.kind} in ({', '.join(map(literal, encoded))}), null, {decoded})"


def _binary(value: _Value, mode: str) -> str:
    plain = f"try_to_binary({value.text}, 'base64')"
    url_safe = f"try_to_binary(translate({value.text}, '-_', '+/'), 'base64')"
    is_bytes = f"{value.text} rlike {literal(_BYTES_AS_CHARACTERS)}"
    decoded = {
        "hex": f"try_to_binary({value.text}, 'hex')",
        "base64-url-safe": url_safe,
        "latin1": f"if({is_bytes}, encode({value.text}, 'ISO-8859-1'), null)",
    }
    return (
        f"case when {value.kind} = 'bytes' then {plain} "
        f"when {value.kind} = 'string' then {decoded.get(mode, plain)} end"
    )


def _time(value: _Value) -> str:
    """The milliseconds of the day. Digits behind them must be zeros. MySQL has times of other days,
    and PostgreSQL has 24:00; Paimon has neither.
    """
    number = f"try_cast({value.text} as bigint)"
    of_day = "timestamp_ntz'1970-01-01 00:00:00'"
    length = with_values(
        {
            "iso": f"regexp_replace({value.text}, '(Z|[+]00:00)$', '')",
            "past": f"try_cast(concat('1970-01-01 ', iso) as timestamp_ntz) - {of_day}",
        },
        "cast(extract(hour from past) * 3600000 + extract(minute from past) * 60000 "
        "+ extract(second from past) * 1000 as int)",
    )
    iso = f"{value.text} rlike '^[0-9:]+([.][0-9]{{1,3}}0*)?(Z|[+]00:00)?$'"
    millis = (
        f"case {value.kind} "
        f"when '{_DEBEZIUM_TIME}Time' then try_cast({value.text} as int) "
        f"when '{_CONNECT}Time' then try_cast({value.text} as int) "
        f"when '{_DEBEZIUM_TIME}MicroTime' then if({number} % 1000 = 0, {number} div 1000, null) "
        f"when '{_DEBEZIUM_TIME}NanoTime' "
        f"then if({number} % 1000000 = 0, {number} div 1000000, null) "
        f"else if({value.kind} in ({', '.join(map(literal, _ISO_TIMES))}) and {iso}, {length}, null) end"
    )
    is_of_day = f"millis between 0 and {_LAST_MILLI_OF_DAY}"
    return with_values({"millis": millis}, f"if({is_of_day}, cast(millis as int), null)")


def _timestamp(value: _Value) -> str:
    """A timestamp without a zone. No time zone takes part in the arithmetic."""
    micros = (
        f"case {value.kind} "
        f"when '{_DEBEZIUM_TIME}Timestamp' then try_multiply(number, 1000L) "
        f"when '{_CONNECT}Timestamp' then try_multiply(number, 1000L) "
        f"when '{_DEBEZIUM_TIME}MicroTimestamp' then number "
        f"when '{_DEBEZIUM_TIME}NanoTimestamp' then if(number % 1000 = 0, number div 1000, null) end"
    )
    seconds = "cast(cast(micros as decimal(20,0)) / 1000000 as decimal(18,6))"
    moment = with_values(
        {"number": f"try_cast({value.text} as bigint)", "micros": micros},
        f"if(micros between {_FIRST_MICRO} and {_LAST_MICRO}, "
        f"timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds}), null)",
    )
    return (
        f"case when {value.kind} in ('{_DEBEZIUM_TIME}IsoTimestamp', 'string') "
        f"then if({value.text} rlike '^{_ISO_MOMENT}Z?$', "
        f"try_cast(regexp_replace({value.text}, 'Z$', '') as timestamp_ntz), null) else {moment} end"
    )


def _problem(frame_columns: Sequence[str], target: EventTarget, envelope: Envelope) -> str:
    """The text that says which record cannot be turned into a row, why, and what to do. NULL for a
    good one. The first reason counts.
    """
    reasons = " ".join(
        f"when {condition} then {reason}"
        for condition, reason in (
            *envelope.problems(target.primary_keys),
            *_problems_of_columns(target),
            *_problems_of_values(target, envelope),
        )
    )
    names = [name for name in ("topic", "partition", "offset") if name in frame_columns]
    place = "".join(f", concat('{name} ', {name})" for name in names)
    return f"concat(concat_ws(', '{place}), '{': ' if names else ''}', (case {reasons} end))"


def _problems_of_columns(target: EventTarget) -> Problems:
    names = f"array({', '.join(literal(column.name) for column in target.columns)})"
    problems = []
    if not target.missing_are_null:
        missing = f"array_except({names}, map_keys(_cdc_row))"
        problems.append(
            (
                f"_cdc_op <> 'd' and size({missing}) > 0",
                f"concat('its row lacks the columns ', array_join({missing}, ', '), '. If the source has "
                "dropped them, use missing_columns=\\'null\\', or drop them from the table.')",
            )
        )
    if not target.new_are_ignored:
        new = f"array_except(map_keys(_cdc_row), {names})"
        problems.append(
            (
                f"_cdc_op <> 'd' and size({new}) > 0",
                f"concat('its row has the columns ', array_join({new}, ', '), ', which the table lacks. Add "
                "them to the table and start the stream again, or use new_columns=\\'ignore\\'.')",
            )
        )
    return problems


def _problems_of_values(target: EventTarget, envelope: Envelope) -> Problems:
    cures = envelope.cures
    problems = []
    for n, column in enumerate(target.fields):
        if column.name not in target.metadata:
            problems += envelope.doubts(column, f"_cdc_t{n}")
        if column.name in target.sequence_fields:
            source = target.metadata.get(column.name, f"column {column.name!r}")
            problems.append(
                (
                    f"_cdc_t{n} is null",
                    literal(
                        f"it has no {source}, which orders the rows, so an older row would stay. {cures.order}"
                    ),
                )
            )
        elif not column.type.nullable:
            is_key = column.name in target.primary_keys
            problems.append(
                (
                    f"_cdc_t{n} is null" if is_key else f"_cdc_t{n} is null and _cdc_op <> 'd'",
                    literal(
                        f"it has no value for column {column.name!r}, which is NOT NULL. Make the column nullable if the "
                        f"source has NULL there; if it is part of the key, {cures.null}"
                    ),
                )
            )
        problems.append(_misfit(n, column, envelope))
    return problems


def _misfit(n: int, column: DataField, envelope: Envelope) -> tuple[str, str]:
    """The problem of a value that the column cannot hold. `n` is the column's number."""
    kind = f"' of kind ', _cdc_k{n}, " if envelope.has_schemas else ""
    return (
        f"_cdc_t{n} is not null and _cdc_c{n} is null",
        f"concat('column \\'{escaped(column.name)}\\' is {column.type}, which the value \\'', left(_cdc_t{n}, 40), "
        f"'\\'', {kind}{literal(f' does not fit. {envelope.cures.misfit}')})",
    )


def _name(value: str) -> str:
    """The name as an identifier of SQL."""
    return "`" + value.replace("`", "``") + "`"
