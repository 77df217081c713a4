"""Messages of Canal and of Maxwell become rows. They are those that the documentation of Flink, of Canal
and of Maxwell shows, completed by hand; no Canal and no Maxwell runs here. `tests/vectors/canal/` has
what a Canal 1.1.7 has made of the statements beside it, on a MariaDB 10.11 with binlog_row_image = FULL:
its embedded server, its flat messages, and JSON as its producer for Kafka writes it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from paimon_stream import PaimonTable, cdc, errors
from tests.kits.spark_jobs import Job

RECORD = "key string, value string, topic string, partition int, offset bigint"
PRODUCTS = [
    ("id", "BIGINT NOT NULL"),
    ("name", "STRING"),
    ("description", "STRING"),
    ("weight", "FLOAT"),
]
SCOOTER = {"id": "111", "name": "scooter", "description": "Big 2-wheel scooter", "weight": "5.18"}
CANAL: dict[str, Any] = {
    "data": [SCOOTER],
    "database": "inventory",
    "es": 1589373560000,
    "id": 9,
    "isDdl": False,
    "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "weight": "FLOAT"},
    "old": [{"weight": "5.15"}],
    "pkNames": ["id"],
    "sql": "",
    "sqlType": {"id": 4, "name": 12, "description": 12, "weight": 7},
    "table": "products",
    "ts": 1589373560798,
    "type": "UPDATE",
}
E_COLUMNS = [
    ("id", "INT NOT NULL"),
    ("m", "DOUBLE"),
    ("c", "TIMESTAMP(6)"),
    ("comment", "STRING"),
]
ROW = {
    "id": 1,
    "m": 4.2341,
    "c": "2016-10-21 05:33:37.523000",
    "comment": "I am a creature of light.",
}
MAXWELL: dict[str, Any] = {
    "database": "test",
    "table": "e",
    "type": "insert",
    "ts": 1477053217,
    "xid": 23396,
    "commit": True,
    "position": "master.000006:800911",
    "server_id": 23042,
    "thread_id": 108,
    "data": ROW,
}
KEY = '{"database":"test","table":"e","pk.id":1}'


def canal(**members: Any) -> str:
    return json.dumps({**CANAL, **members}, ensure_ascii=False)


def maxwell(**members: Any) -> str:
    return json.dumps({**MAXWELL, **members}, ensure_ascii=False, separators=(",", ":"))


def frame(job: Job, values: list[str | tuple[str | None, str]]) -> DataFrame:
    """Records with these values, or keys and values."""
    pairs = [(None, value) if isinstance(value, str) else value for value in values]
    rows = [(*pair, "all", 0, offset) for offset, pair in enumerate(pairs)]
    return job.spark.createDataFrame(rows, RECORD).coalesce(1)


def plain(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in rows.collect()
    ]


def reasons(only: DataFrame) -> dict[int, str]:
    return {row.offset: row.problem for row in only.collect()}


@pytest.mark.spark35
@pytest.mark.spark4
def test_messages_of_canal_become_rows_in_their_order(job: Job) -> None:
    table = job.create(PRODUCTS, primary_keys=["id"])
    other = {**SCOOTER, "id": "112", "name": None}
    values = [
        canal(type="INSERT", old=None, data=[SCOOTER, other]),
        canal(),
        canal(table="customers", pkNames=None, data=None),
        canal(database="archive", isDdl=True, type="TRUNCATE", data=None),
        canal(data=[{**SCOOTER, "id": "211"}], old=[{"id": "111", "weight": "5.18"}]),
        canal(data=[other], old=[{"id": "112"}]),  # columns of other rows of a statement
        canal(type="DELETE", old=None, data=[other]),
    ]
    rows = plain(cdc.canal(frame(job, values), table, "inventory.products"))
    weight = pytest.approx(5.18, rel=1e-6)
    text = "Big 2-wheel scooter"
    assert rows == [
        (111, "scooter", text, weight, "c"),
        (112, None, text, weight, "c"),
        (111, "scooter", text, weight, "u"),
        (111, "scooter", text, weight, "d"),
        (211, "scooter", text, weight, "u"),
        (112, None, text, weight, "u"),
        (112, None, text, weight, "d"),
    ]


@pytest.mark.spark35
@pytest.mark.spark4
def test_messages_of_maxwell_become_rows_in_their_order(job: Job) -> None:
    table = job.create([*E_COLUMNS, ("changed", "BIGINT")], primary_keys=["id"])
    later = {**ROW, "m": 5.444, "c": "2016-10-21 05:33:54.631000"}
    moved = {**later, "id": 7}
    values = [
        (None, maxwell(type="bootstrap-start", data={})),
        (KEY, maxwell(type="bootstrap-insert", data={**ROW, "comment": None})),
        (None, maxwell(type="bootstrap-complete", data={})),
        (KEY, maxwell()),
        (KEY, maxwell(type="update", data=later, old={"m": 4.2341, "c": ROW["c"]}, ts=1477053234)),
        ('{"database":"test","table":"f","pk.nr":1}', maxwell(table="f", data={"nr": 1})),
        (KEY.replace("1", "7"), maxwell(type="update", data=moved, old={"id": 1})),
        (KEY.replace("1", "7"), maxwell(type="delete", data=moved)),
    ]
    rows = cdc.maxwell(frame(job, values), table, "test.e", metadata={"changed": "ts"})
    first, second = (
        dt.datetime(2016, 10, 21, 5, 33, 37, 523000),
        dt.datetime(2016, 10, 21, 5, 33, 54, 631000),
    )
    text, at = ROW["comment"], 1477053217
    assert plain(rows) == [
        (1, 4.2341, first, None, at, "r"),
        (1, 4.2341, first, text, at, "c"),
        (1, 5.444, second, text, 1477053234, "u"),
        (1, 5.444, second, text, at, "d"),
        (7, 5.444, second, text, at, "u"),
        (7, 5.444, second, text, at, "d"),
    ]


CANAL_RUN = Path(__file__).parents[1] / "vectors" / "canal" / "flat_messages.jsonl"


def test_what_a_real_canal_sends_becomes_the_rows_of_its_database(job: Job) -> None:
    table = job.create([*PRODUCTS, ("note", "STRING")], primary_keys=["id"])
    seen: list[Any] = CANAL_RUN.read_text().splitlines()
    rows = cdc.canal(
        frame(job, seen), table, "inventory.products", ddl="ignore", missing_columns="null"
    )
    first, second = pytest.approx(5.15, rel=1e-6), pytest.approx(5.18, rel=1e-6)
    scooter = ("scooter", "Big 2-wheel scooter")
    changed = (112, "", 'a "quote" \\ and \n line', None, None)
    assert plain(rows) == [
        (111, *scooter, first, None, "c"),
        (112, "Rad ä 漢 😀", None, None, None, "c"),
        (111, *scooter, second, None, "u"),
        (111, *scooter, second, None, "d"),
        (211, *scooter, second, None, "u"),
        (*changed, "u"),
        (*changed, "d"),
        (300, "last", "x", 1.0, "n", "c"),
    ]


def test_a_real_canal_sends_the_numbers_of_enums_and_sets(job: Job) -> None:
    columns = [
        ("a", "DECIMAL(20, 0) NOT NULL"),
        ("b", "STRING NOT NULL"),
        ("small", "TINYINT"),
        ("flag", "BOOLEAN"),
        ("bit1", "BOOLEAN"),
        ("num", "DECIMAL(20, 6)"),
        ("d", "DOUBLE"),
        ("f", "FLOAT"),
        ("day", "DATE"),
        ("t", "TIME(3)"),
        ("dt", "TIMESTAMP(6)"),
        ("ts", "TIMESTAMP(3)"),
        ("bin", "BYTES"),
        ("bl", "BYTES"),
        ("e", "STRING"),
        ("s", "BIGINT"),
    ]
    table = job.create(columns, primary_keys=["a", "b"])
    seen: list[Any] = CANAL_RUN.read_text().splitlines()
    rows = plain(cdc.canal(frame(job, seen), table, "inventory.kinds", ddl="ignore"))
    key = (Decimal(18446744073709551615), "k", -128)
    at = dt.datetime(2026, 11, 20, 10, 0, 0, 123456)
    same = (
        *(True, Decimal("-0.000001"), 0.1, 16777216.0, dt.date(2026, 2, 28), 86_399_123),
        *(at, at.replace(microsecond=123000), b"\x00\xff\x80"),
    )
    number = Decimal("12345678901234.123456")
    assert rows == [
        (*key, True, True, number, *same[2:], b"\x00\x01\xfe", "2", 5, "c"),
        (Decimal(1), "null", *[None] * 14, "c"),
        (*key, False, *same, b"\xc3\xa4", None, 5, "u"),
        (Decimal(1), "null", 7, *[None] * 13, "u"),
    ]


KINDS = [
    ("id", "DECIMAL(30, 20) NOT NULL"),
    ("flag", "BOOLEAN"),
    ("big", "DECIMAL(20, 0)"),
    ("price", "DECIMAL(38, 18)"),
    ("day", "DATE"),
    ("t", "TIME(3)"),
    ("at", "TIMESTAMP(3)"),
    ("b", "BYTES"),
    ("tags", "STRING"),
]
HELD = (
    Decimal("1.00000000000000000001"),
    True,
    Decimal("18446744073709551615"),
    Decimal("12345678901234567890.123456789000000000"),
    dt.date(2026, 11, 30),
    3_723_004,
    dt.datetime(2026, 11, 30, 1, 2, 3, 4000),
    b"\x00\xff\n",
)
OF_CANAL = {
    "id": "1.00000000000000000001",
    "flag": "1",
    "big": "18446744073709551615",
    "price": "12345678901234567890.123456789",
    "day": "2026-11-30",
    "t": "01:02:03.004",
    "at": "2026-11-30 01:02:03.004",
    "b": "\x00\xff\n",
    "tags": "b,c",
}
OF_MAXWELL = json.dumps(
    {**OF_CANAL, "flag": 1, "b": "AP8K", "tags": ["b", "c"]}, separators=(",", ":")
)
for number in ("id", "big", "price"):
    OF_MAXWELL = OF_MAXWELL.replace(f'"{OF_CANAL[number]}"', OF_CANAL[number])


@pytest.mark.spark35
@pytest.mark.spark4
def test_each_kind_of_value_comes_as_the_database_has_it(job: Job) -> None:
    table = job.create(KINDS, primary_keys=["id"])
    sent = frame(job, [canal(type="INSERT", old=None, data=[OF_CANAL])])
    assert plain(cdc.canal(sent, table, "inventory.products")) == [(*HELD, "b,c", "c")]
    second = OF_MAXWELL.replace("00000000001", "00000000002", 1)
    values = [
        (KEY, maxwell(data=0).replace('"data":0', f'"data":{OF_MAXWELL}')),
        (
            KEY,
            maxwell(type="update", data=0).replace(
                '"data":0', f'"data":{second},"old":{{"id":{OF_CANAL["id"]}}}'
            ),
        ),
    ]
    rows = plain(cdc.maxwell(frame(job, values), table, "test.e"))
    moved = (Decimal("1.00000000000000000002"), *HELD[1:])
    assert rows == [
        (*HELD, '["b","c"]', "c"),
        (*HELD, '["b","c"]', "d"),
        (*moved, '["b","c"]', "u"),
    ]


def test_each_bad_message_of_canal_is_named_with_a_cure(job: Job) -> None:
    table = job.create([*PRODUCTS, ("b", "BYTES"), ("z", "TIMESTAMP_LTZ(3)")], primary_keys=["id"])
    row = {**SCOOTER, "b": None, "z": None}

    def changed(**columns: Any) -> str:
        return canal(data=[{**row, **columns}], old=None)

    values = {
        "no JSON of an envelope. Let Canal write flat messages": "binary",
        "has no 'database', 'table' and 'type'": "{}",
        "the statement 'ALTER TABLE.*ddl='ignore'.*canal.instance.filter.query.ddl": canal(
            isDdl=True, type="ALTER", data=None, sql="ALTER TABLE products ADD x INT"
        ),
        "the statement 'DROP DATABASE inventory'": canal(
            isDdl=True, type="QUERY", table="", data=None, sql="DROP DATABASE inventory"
        ),
        "its type is 'QUERY', which is none of INSERT, UPDATE, DELETE": canal(type="QUERY"),
        "it has no pkNames.*binlog_row_image = FULL": canal(pkNames=None),
        "its key has the columns id, name, the table's primary key is id": canal(
            pkNames=["name", "id"]
        ),
        "it has no row in 'data'.*binlog_format = ROW": canal(data=None),
        "its row lacks the columns b, z": canal(),
        "its row has the columns extra": changed(extra="1"),
        "column 'b' is BYTES": changed(b="€"),
        "column 'z' is TIMESTAMP.*03' does not fit. Give the column.*docs/cdc.md": changed(
            z="2026-11-30 01:02:03"
        ),
        "column 'description' comes as a number of JSON": changed(description=1.25),
        "it has no value for column 'id'.*binlog_row_image = FULL": changed(id=None),
        "has the member weight more than once": changed().replace(
            '"weight": "5.18"', '"weight": "5.18", "weight": "5.19"'
        ),
        "has the member type more than once": changed()[:-1] + ', "type": "DELETE"}',
        "has the member database more than once": changed()[:-1] + ', "database": "archive"}',
    }
    only = cdc.canal(
        frame(job, list(values.values())), table, "inventory.products", bad_events="only"
    )
    found = reasons(only)
    assert sorted(found) == list(range(len(values)))
    for offset, pattern in enumerate(values):
        assert found[offset].startswith(f"topic all, partition 0, offset {offset}: ")
        assert re.search(pattern, found[offset]), found[offset]
    statements = frame(job, [value for value in values.values() if '"isDdl": true' in value])
    assert plain(cdc.canal(statements, table, "inventory.products", ddl="ignore")) == []
    placeholder = changed(description="__debezium_unavailable_value", z=None)
    (kept,) = plain(cdc.canal(frame(job, [placeholder]), table, "inventory.products"))
    assert kept[2] == "__debezium_unavailable_value"


@pytest.mark.full
def test_each_bad_message_of_maxwell_is_named_with_a_cure(job: Job) -> None:
    table = job.create(E_COLUMNS, primary_keys=["id"])
    values: dict[str, tuple[str | None, str]] = {
        "no JSON of an envelope.*encrypt = none": (KEY, "encrypted"),
        "its type is 'heartbeat'": (KEY, maxwell(type="heartbeat")),
        "the statement 'drop table e'.*output_ddl = false": (
            None,
            maxwell(type="table-drop", sql="drop table e"),
        ),
        "the statement 'database-drop'": (
            None,
            json.dumps({"type": "database-drop", "database": "test"}),
        ),
        "it has no key": (None, maxwell()),
        "its key is no JSON object.*kafka_key_format = hash": (
            '["test","e",[{"id":1}]]',
            maxwell(),
        ),
        "its key has the columns _uuid": ('{"database":"test","table":"e","_uuid":"x"}', maxwell()),
        "it has no row in 'data'.*encrypt = none": (KEY, maxwell(data=None, encrypted="x")),
        "its row lacks the columns comment": (
            KEY,
            maxwell(data={k: v for k, v in ROW.items() if k != "comment"}),
        ),
        "column 'comment' comes as a number of JSON.*DECIMAL": (
            KEY,
            maxwell(data={**ROW, "comment": 1.5}),
        ),
        "column 'c' is TIMESTAMP": (KEY, maxwell(data={**ROW, "c": "0000-00-00 00:00:00"})),
    }
    only = cdc.maxwell(frame(job, list(values.values())), table, "test.e", bad_events="only")
    found = reasons(only)
    assert sorted(found) == list(range(len(values)))
    for offset, pattern in enumerate(values):
        assert re.search(pattern, found[offset]), found[offset]
    other_format = ('["test","e",[{"id":1}]]', maxwell(primary_key_columns=["id"]))
    (row,) = plain(cdc.maxwell(frame(job, [other_format]), table, "test.e"))
    assert row[0] == 1


@pytest.mark.full
def test_java_reads_the_rows_that_mysql_has_at_the_end(job: Job, java: Any) -> None:
    table = job.create(PRODUCTS, primary_keys=["id"])
    other = {**SCOOTER, "id": "112"}
    values = [
        canal(type="INSERT", old=None, data=[SCOOTER, other]),
        canal(data=[{**SCOOTER, "id": "211"}], old=[{"id": "111"}]),
        canal(type="DELETE", old=None, data=[other]),
    ]
    rows = cdc.canal(frame(job, values), table, "inventory.products")
    table.append(rows, operation_column="op")
    assert [row["id"] for row in java.read(job.table)] == [211]


def test_wrong_arguments_are_refused_by_name(job: Job) -> None:
    table = job.create(PRODUCTS, primary_keys=["id"])
    records = frame(job, [])
    with pytest.raises(errors.InvalidOption, match=r"source is 'products'.*such as shop.orders"):
        cdc.canal(records, table, "products")
    with pytest.raises(errors.InvalidOption, match=r"ddl is 'skip'.*error, ignore"):
        cdc.maxwell(records, table, "a.b", ddl="skip")
    with pytest.raises(errors.InvalidOption, match=r"'lsn'.*one of type, es, ts, id, gtid"):
        cdc.canal(records, table, "a.b", metadata={"name": "lsn"})
    with pytest.raises(errors.InvalidOption, match="lacks the column 'key'"):
        cdc.maxwell(records.drop("key"), table, "a.b")
    with pytest.raises(errors.InvalidOption, match="a PaimonTable"):
        cdc.canal(records, "orders", "a.b")  # type: ignore[arg-type]
    assert isinstance(table, PaimonTable)
