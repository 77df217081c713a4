"""Change events that Debezium 3.6.1 made of PostgreSQL become rows, and a table with them.

`tests/vectors/debezium/` has the events of one history for several options of the connector. Each
file has the records of Kafka, in order.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions

from paimon_stream import PaimonTable, cdc, errors
from tests.kits.params import few
from tests.kits.spark_jobs import Job

EVENTS = Path(__file__).parents[1] / "vectors" / "debezium"
RECORD = "key string, value string, topic string, partition int, offset bigint"
ORDERS = [
    ("id", "BIGINT NOT NULL"),
    ("customer", "STRING NOT NULL"),
    ("amount", "DECIMAL(12, 2) NOT NULL"),
    ("price", "DECIMAL(38, 10)"),
    ("anyscale", "DECIMAL(20, 6)"),
    ("paid", "BOOLEAN"),
    ("small", "SMALLINT"),
    ("n", "INT"),
    ("r", "FLOAT"),
    ("d", "DOUBLE"),
    ("day", "DATE"),
    ("t3", "TIME(3)"),
    ("t6", "BIGINT"),
    ("ts3", "TIMESTAMP(3)"),
    ("ts6", "TIMESTAMP(6)"),
    ("tz", "TIMESTAMP_LTZ(6)"),
    ("b", "VARBINARY(4)"),
    ("u", "VARCHAR(36)"),
    ("j", "STRING"),
    ("tags", "ARRAY<STRING>"),
    ("ints", "ARRAY<INT>"),
    ("note", "STRING"),
]
FIRST = {
    "id": 1,
    "customer": "Ann",
    "amount": Decimal("12.50"),
    "price": Decimal("-12345678901234567890123456.0123456789"),
    "anyscale": Decimal("1.234500"),
    "paid": True,
    "small": -7,
    "n": 2147483647,
    "r": 1.5,
    "d": 0.1,
    "day": dt.date(1969, 12, 31),
    "t3": 45296789,
    "t6": 45296789012,
    "ts3": dt.datetime(2026, 11, 30, 1, 2, 3, 456000),
    "ts6": dt.datetime(1906, 1, 2, 3, 4, 5, 123456),
    "tz": 1_795_993_323_123_456,
    "b": b"\xde\xad\xbe\xef",
    "u": "123e4567-e89b-12d3-a456-426614174000",
    "j": '{"a": [1, "x"]}',
    "tags": ["a", "b,c"],
    "ints": [1, 2],
    "note": None,
    "op": "r",
}
"""The first row of the history."""

MILLIS = {"t6": 45296789, "ts6": dt.datetime(1906, 1, 2, 3, 4, 5, 123000)}
INEXACT = {"price": Decimal("-12345678901234568000000000.0000000000")}
VARIANTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "schemas": ({}, {}),
    "plain": ({}, {}),
    "connect-string": ({"binary_handling_mode": "hex"}, MILLIS),
    "connect-string-plain": (
        {
            "time_precision_mode": "connect",
            "decimal_handling_mode": "string",
            "binary_handling_mode": "hex",
        },
        MILLIS,
    ),
    "iso-double": ({"binary_handling_mode": "base64"}, {**INEXACT, "t6": "12:34:56.789012Z"}),
    "iso-double-plain": (
        {
            "time_precision_mode": "isostring",
            "decimal_handling_mode": "double",
            "binary_handling_mode": "base64-url-safe",
        },
        {**INEXACT, "t6": "12:34:56.789012Z"},
    ),
    "micro-plain": ({"time_precision_mode": "microseconds"}, {}),
    "nano-plain": ({"time_precision_mode": "nanoseconds"}, {"t6": 45296789012000}),
}
"""The arguments for each file, and what differs in the first row."""


def records(variant: str, table: str = "orders") -> list[tuple[Any, ...]]:
    """The records of one topic."""
    lines = gzip.decompress((EVENTS / f"{variant}.jsonl.gz").read_bytes()).decode().splitlines()
    found = [json.loads(line) for line in lines]
    return [
        tuple(one[name] for name in ("key", "value", "topic", "partition", "offset"))
        for one in found
        if one["topic"] == f"shop.public.{table}"
    ]


def frame(job: Job, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return job.spark.createDataFrame(list(rows), RECORD).coalesce(1)


def orders(job: Job, variant: str = "plain", **arguments: Any) -> PaimonTable:
    text = "STRING" if variant.startswith("iso") else "BIGINT"
    columns = [(name, text if name == "t6" else type_) for name, type_ in ORDERS]
    return job.create(columns, primary_keys=["id"], **arguments)


def changed(record: tuple[Any, ...], **members: Any) -> tuple[Any, ...]:
    """A record of `plain` whose envelope has other members."""
    return (record[0], json.dumps({**json.loads(record[1]), **members}), *record[2:])


def with_value(number: int, column: str, value: Any, **field: Any) -> tuple[Any, ...]:
    """The first record of `schemas` with another value, whose field has other members in the
    schema. A value of None in `field` takes the member away. The offset is `number`.
    """
    key, text, topic, partition, _ = records("schemas")[0]
    envelope = json.loads(text)
    envelope["payload"]["after"][column] = value
    for row in envelope["schema"]["fields"][:2]:
        (changed,) = (one for one in row["fields"] if one["field"] == column)
        changed.update(field)
    return (key, json.dumps(envelope), topic, partition, number)


def reasons(job: Job, table: PaimonTable, rows: Sequence[tuple[Any, ...]], **arguments: Any) -> Any:
    """The reason of each bad record by its offset."""
    only = cdc.debezium(frame(job, rows), table, bad_events="only", **arguments)
    return {row.offset: row.problem for row in only.collect()}


@pytest.mark.parametrize(
    "variant", few(VARIANTS, lambda name: name in ("schemas", "connect-string-plain"))
)
@pytest.mark.spark35
@pytest.mark.spark4
def test_each_encoding_of_the_connector_gives_the_rows_of_the_database(
    job: Job, variant: str
) -> None:
    arguments, other = VARIANTS[variant]
    rows = cdc.debezium(
        frame(job, records(variant)), orders(job, variant), bad_events="leave-out", **arguments
    ).withColumn("tz", functions.expr("unix_micros(tz)"))
    found = [row.asDict() for row in rows.collect()]
    assert found[0] == {**FIRST, **other}
    assert [(row["id"], row["op"]) for row in found] == [
        (1, "r"),
        (2, "r"),
        (3, "c"),
        (4, "c"),
        (3, "u"),
        (1, "d"),
        (4, "d"),
        (40, "c"),
    ]
    assert found[1]["amount"] == Decimal("-0.01") and len(found[1]["note"]) == 6400
    assert (found[3]["customer"], found[3]["price"]) == ('Ünï "x"', None)


def test_each_bad_record_is_named_with_its_place_and_a_cure(job: Job) -> None:
    table = orders(job)
    good = changed(records("plain")[0])
    wrong = [
        (good[0], "no JSON", *good[2:4], 100),
        (None, *good[1:4], 101),
        ("7", *good[1:4], 102),
        ('{"number": 7}', *good[1:4], 103),
        (*changed(good, op="x")[:4], 104),
        (*changed(good, after=None)[:4], 105),
        (*changed(good, op="u", after={"id": 1})[:4], 106),
        (*changed(good, after={**json.loads(good[1])["after"], "n": 2**31})[:4], 107),
        (*changed(good, after={**json.loads(good[1])["after"], "ts6": 2**63 - 1})[:4], 108),
        (*changed(good, after={**json.loads(good[1])["after"], "ints": [1, "x"]})[:4], 112),
        (*changed(good, after={**json.loads(good[1])["after"], "day": 2**31 - 1})[:4], 113),
        (good[0], json.dumps(json.loads(good[1])["after"]), *good[2:4], 109),
        (good[0], None, *good[2:4], 110),
        (good[0], good[1] + " and more", *good[2:4], 111),
        (good[0], good[1] + "} and more", *good[2:4], 114),
        (good[0], good[1] + "]} and more", *good[2:4], 115),
        (good[0], good[1] + ',"source":{}', *good[2:4], 116),
        (good[0] + " and more", *good[1:4], 117),
    ]
    found = reasons(job, table, [*records("plain"), *wrong])
    expected = {
        5: "did not send the unchanged large value of note. Set REPLICA IDENTITY FULL",
        11: "its row has the columns extra, which the table lacks. Add them",
        12: "TRUNCATE",
        100: "no JSON of an envelope",
        101: "it has no key",
        102: "its key is no JSON object",
        103: "its key has the columns number, the table's primary key is id",
        104: "its op is 'x', which is none of c, u, d and r",
        105: "its op is r, but it has no row in 'after'",
        106: "its row lacks the columns customer, amount",
        107: "column 'n' is INT, which the value '2147483648'",
        108: "column 'ts6' is TIMESTAMP(6), which the value '9223372036854775807'",
        112: "column 'ints' is ARRAY<INT>",
        113: "column 'day' is DATE, which the value '2147483647'",
        111: "no JSON of an envelope",
        114: "no JSON of an envelope",
        115: "no JSON of an envelope",
        116: "no JSON of an envelope",
        117: "its key is no JSON object",
        109: "has no 'op'.*ExtractNewRecordState",
    }
    assert found.keys() == expected.keys()
    for offset, pattern in expected.items():
        assert found[offset].startswith(f"topic shop.public.orders, partition 0, offset {offset}: ")
        assert re.search(pattern.replace("(6)", "[(]6[)]"), found[offset]), found[offset]


def doubled(text: str, member: str) -> str:
    """The text with a second member of that name behind the first one."""
    return text.replace(f'"{member}":', f'"{member}":null,"{member}":', 1)


@pytest.mark.spark35
@pytest.mark.spark4
def test_a_record_that_json_or_utf_8_leaves_open_is_bad(job: Job) -> None:
    table = orders(job)
    key, text, *place = records("plain")[0]
    typed_key, typed, *_ = records("schemas")[0]
    (named,) = set(re.findall('{"type":"int64","optional":false,"field":"id"}', typed))
    values = {
        0: (key, doubled(text, "op")),
        1: (key, doubled(text, "after")),
        2: (key, doubled(text, "customer")),
        3: (key, doubled(text, "lsn")),
        4: (doubled(key, "id"), text),
        5: (typed_key, doubled(typed, "payload")),
        6: (typed_key, doubled(typed, "op")),
        7: (typed_key, typed.replace(named, f"{named},{named}")),
        8: (typed_key, typed.replace(named, f'{named},{{"type":"int64"}}')),
    }
    rows = [(key.encode(), text.encode(), *place[:2], n) for n, (key, text) in values.items()]
    broken = text.encode().replace(b"Ann", b"A\xffn")
    held = text.replace("Ann", "A\N{REPLACEMENT CHARACTER}n").encode()
    rows += [
        (key.encode(), broken, *place[:2], 100),
        (key.encode() + b"\xff", text.encode(), *place[:2], 101),
        (key.encode(), held, *place[:2], 102),
    ]
    binary = RECORD.replace("key string, value string", "key binary, value binary")
    sent = job.spark.createDataFrame(rows, binary).coalesce(1)
    only = cdc.debezium(sent, table, bad_events="only").collect()
    found = {row.offset: row.problem for row in only}
    members = ("op", "after", "customer", "lsn", "id", "payload", "op", "id")
    for offset, member in enumerate(members):
        assert f"offset {offset}: its JSON has the member {member} more than once" in found[offset]
    assert "offset 100: its value has bytes that are no UTF-8" in found[100]
    assert "offset 101: its key has bytes that are no UTF-8" in found[101]
    assert sorted(found) == [*range(8), 100, 101]
    rows = cdc.debezium(sent.where("offset = 102"), table).collect()
    assert [row.customer for row in rows] == ["A\N{REPLACEMENT CHARACTER}n"]
    truncate = text[:-1] + ',"op":"t"}'
    ignored = reasons(job, table, [(key, truncate, *place[:2], 0)], truncates="ignore")
    assert "has the member op more than once" in ignored[0]


TIME = "io.debezium.time."
NUMERIC = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
CHANGED: list[tuple[str, Any, dict[str, Any]]] = [
    ("amount", 1234, {}),
    ("t3", 86_400_000, {}),
    ("t3", -1, {}),
    ("t3", 5 * 10**15, {"name": f"{TIME}MicroTime"}),
    ("tz", "2020-01-01T00:00:00.1234567Z", {}),
    ("tz", "+12345-01-01T00:00:00Z", {}),
    ("ts6", "2020-01-01T00:00:00.1234567Z", {"type": "string", "name": f"{TIME}IsoTimestamp"}),
    ("day", "2020-01-01 23:00", {"type": "string", "name": None}),
    ("ts3", 1_577_836_800_123_456, {"name": f"{TIME}MicroTimestamp"}),
    ("b", "AAECAwQ=", {}),
    ("u", "ü" * 37, {}),
    ("r", 1e300, {"type": "double"}),
    ("d", "1" + "0" * 400, {"type": "string"}),
    ("tags", ["BNI="], {"items": NUMERIC}),
    ("ints", ["1234"], {"items": NUMERIC}),
    ("n", "1234", {"type": "bytes", "name": "io.debezium.data.Bits"}),
    ("note", "1234", {"type": "bytes", "name": "io.debezium.data.Bits"}),
    ("price", "AQ==", {"parameters": {"scale": "2147483647"}}),
    ("price", "AQ==", {"parameters": {"scale": "two"}}),
    ("price", "1.00000000000000000000001E0", {"type": "string", "name": None}),
    ("price", "1E-400", {"type": "string", "name": None}),
]
"""Values that a column cannot hold as the database has them, and their fields of the schema."""

HELD: list[tuple[str, Any, dict[str, Any], Any]] = [
    ("t3", 86_399_999, {}, 86_399_999),
    (
        "ts3",
        -1_577_836_800_123_000,
        {"name": f"{TIME}MicroTimestamp"},
        dt.datetime(1920, 1, 1, 23, 59, 59, 877000),
    ),
    ("u", "ü" * 36, {}, "ü" * 36),
    ("r", "Infinity", {}, float("inf")),
    ("day", "2020-01-02Z", {"type": "string", "name": f"{TIME}IsoDate"}, dt.date(2020, 1, 2)),
    ("price", "1.25E3", {"type": "string", "name": None}, Decimal(1250)),
    ("amount", "BNI=", {}, Decimal("12.34")),
    (
        "ts6",
        "2020-01-01T02:03:00.1234560Z",
        {"type": "string", "name": f"{TIME}IsoTimestamp"},
        dt.datetime(2020, 1, 1, 2, 3, 0, 123456),
    ),
]
"""Values beside those, and what the column has."""


@pytest.mark.spark35
@pytest.mark.spark4
def test_a_value_that_would_come_out_as_another_one_is_bad(job: Job) -> None:
    table = orders(job)
    bad = [
        with_value(number, name, value, **field)
        for number, (name, value, field) in enumerate(CHANGED)
    ]
    held = [with_value(100, name, value, **field) for name, value, field, _ in HELD]
    found = reasons(job, table, [*bad, *held])
    assert sorted(found) == list(range(len(CHANGED)))
    for number, (column, _, _) in enumerate(CHANGED):
        assert f"column '{column}' is " in found[number]
    rows = cdc.debezium(frame(job, held), table).collect()
    assert [row[name] for row, (name, *_) in zip(rows, HELD, strict=True)] == [
        value for *_, value in HELD
    ]


def test_an_event_without_its_key_or_its_order_is_bad(job: Job) -> None:
    table = orders(job, options={"sequence.field": "n"})
    row = {**json.loads(records("plain")[0][1])["after"], "customer": "Ann"}
    key, _, topic, partition, _ = records("plain")[0]
    events = [
        {"op": "d", "before": {**row, "id": None}},
        {"op": "d", "before": {**row, "n": None}},  # what REPLICA IDENTITY DEFAULT sends
        {"op": "u", "after": {**row, "n": None}},
        {"op": "c", "after": {**row, "customer": None}},
        {"op": "d", "before": {**row, "customer": None}},
    ]
    found = reasons(
        job,
        table,
        [(key, json.dumps(event), topic, partition, n) for n, event in enumerate(events)],
    )
    named = {offset: re.findall("column '([a-z]+)'", reason) for offset, reason in found.items()}
    assert named == {0: ["id"], 1: ["n"], 2: ["n"], 3: ["customer"]}


@pytest.mark.full
def test_a_stream_fails_on_a_bad_record_and_loses_nothing(job: Job) -> None:
    table = orders(job)
    with pytest.raises(
        errors.BadChangeEvent, match=r"topic shop.public.orders, partition 0, offset 5: .*FULL"
    ):
        table.append(cdc.debezium(frame(job, records("plain")), table), operation_column="op")
    assert table.latest_snapshot() is None


@pytest.mark.parametrize(
    ("bucket", "small"), few([("-1", "auto"), ("-1", "off"), ("2", "off")], lambda *_: _[0] == "2")
)
def test_a_record_without_a_key_value_is_named_before_its_bucket_is_looked_for(
    job: Job, bucket: str, small: str
) -> None:
    table = job.create(
        [("id", "BIGINT NOT NULL"), ("note", "STRING"), ("n", "INT")],
        primary_keys=["id"],
        options={"bucket": bucket},
    )
    key, _, *place = records("plain", "full_orders")[0]
    names = RECORD.replace(" string", "").replace(" int", "").replace(" bigint", "").split(", ")
    (job.root / "topic").mkdir()
    lines = [
        dict(zip(names, record, strict=True))
        for record in [*records("plain", "full_orders"), (key, "no JSON", *place)]
    ]
    (job.root / "topic" / "1.json").write_text("\n".join(map(json.dumps, lines)))
    stream = job.spark.readStream.schema(RECORD).json(str(job.root / "topic"))
    options = {"paimon-stream.operation-column": "op", "paimon-stream.small-batch": small}
    sink = job.sink(options=options)
    job.run_failing(sink, frame=cdc.debezium(stream, table))
    assert isinstance(sink.last_error, errors.BadChangeEvent)
    assert "topic shop.public.full_orders, partition 0, offset 0: its value is no JSON" in str(
        sink.last_error
    )
    assert job.load().latest_snapshot() is None


@pytest.mark.full
def test_java_reads_the_rows_that_the_database_has_at_the_end(job: Job, java: Any) -> None:
    table = job.create(
        [("id", "BIGINT NOT NULL"), ("note", "STRING"), ("n", "INT"), ("lsn", "BIGINT")],
        primary_keys=["id"],
        options={"sequence.field": "lsn"},
    )
    events = records("plain", "full_orders")
    late = [*events[:2], events[0]]  # what a connector sends again after it has died

    def apply(some: Sequence[tuple[Any, ...]]) -> None:
        rows = cdc.debezium(frame(job, some), table, metadata={"lsn": "source.lsn"})
        table.append(rows, operation_column="op")

    apply(late)
    (row,) = java.read(job.table)
    assert row["n"] == 2 and len(row["note"]) == 6400
    apply(events[2:])
    assert list(java.read(job.table)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bad_events": "skip"}, "bad_events is 'skip'.*fail, leave-out, only"),
        ({"metadata": {"nope": "op"}}, "names of columns of the table"),
        ({"metadata": {"n": "lsn"}}, "such as source.lsn"),
        ({"operation_column": "N"}, "a name that no column of the table has"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    job: Job, arguments: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        cdc.debezium(frame(job, []), orders(job), **arguments)


def test_a_frame_or_a_table_that_cannot_do_is_refused(job: Job) -> None:
    with pytest.raises(errors.InvalidOption, match=r"lacks the column 'key'.*source 'kafka'"):
        cdc.debezium(job.spark.range(1), orders(job))
    keyless = PaimonTable.create(str(job.root / "shop.db" / "keyless"), schema=[("id", "INT")])
    with pytest.raises(errors.InvalidOption, match="has no primary key"):
        cdc.debezium(frame(job, []), keyless)
    odd = PaimonTable.create(
        str(job.root / "shop.db" / "odd"),
        schema=[("id", "INT NOT NULL"), ("m", "MAP<STRING, INT>")],
        primary_keys=["id"],
    )
    with pytest.raises(errors.UnsupportedFeature, match="Make it STRING"):
        cdc.debezium(frame(job, []), odd)
