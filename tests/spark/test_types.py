"""Columns of a DataFrame against columns of a table."""

from __future__ import annotations

import datetime
import re
import warnings
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as st
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from paimon_stream.errors import IncompatibleSchema, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.spark.align import align, project
from paimon_stream.spark.types import can_up_cast, spark_type, to_data_fields
from paimon_stream.write.conform import ColumnPlan

SCALARS: tuple[tuple[st.DataType, str], ...] = (
    (st.BooleanType(), "BOOLEAN"),
    (st.ByteType(), "TINYINT"),
    (st.ShortType(), "SMALLINT"),
    (st.IntegerType(), "INT"),
    (st.LongType(), "BIGINT"),
    (st.FloatType(), "FLOAT"),
    (st.DoubleType(), "DOUBLE"),
    (st.DecimalType(5, 2), "DECIMAL(5, 2)"),
    (st.DecimalType(10, 0), "DECIMAL(10, 0)"),
    (st.DecimalType(19, 0), "DECIMAL(19, 0)"),
    (st.DecimalType(20, 0), "DECIMAL(20, 0)"),
    (st.DecimalType(38, 10), "DECIMAL(38, 10)"),
    (st.StringType(), "STRING"),
    (st.BinaryType(), "BYTES"),
    (st.DateType(), "DATE"),
    (st.TimestampType(), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    (st.TimestampNTZType(), "TIMESTAMP(6)"),
)
NESTED: tuple[tuple[st.DataType, str], ...] = (
    (st.ArrayType(st.IntegerType(), False), "ARRAY<INT NOT NULL>"),
    (st.MapType(st.StringType(), st.LongType(), True), "MAP<STRING NOT NULL, BIGINT>"),
    (st.StructType([st.StructField("a", st.DateType(), False)]), "ROW<a DATE NOT NULL>"),
)
REFUSED_UP_CASTS = {
    ("timestamp", "timestamp_ntz"),
    ("timestamp_ntz", "timestamp"),
    ("timestamp", "bigint"),
    ("bigint", "timestamp"),
    ("binary", "string"),
    ("int", "float"),
    ("bigint", "float"),
    ("bigint", "double"),
}


def schema_of(*columns: tuple[str, str], keys: tuple[str, ...] = (), **options: str) -> TableSchema:
    fields = tuple(DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(columns))
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=len(fields) - 1,
        partition_keys=keys,
        options=MappingProxyType(options),
    )


def struct(**columns: st.DataType) -> st.StructType:
    return st.StructType([st.StructField(name, type_) for name, type_ in columns.items()])


def refused(
    frame: st.StructType, schema: TableSchema, case_sensitive: bool = False
) -> IncompatibleSchema:
    with pytest.raises(IncompatibleSchema) as caught:
        align(frame, schema, case_sensitive=case_sensitive, location="/w/db.db/t")
    assert "/w/db.db/t" in caught.value.message
    return caught.value


@pytest.mark.spark35
@pytest.mark.parametrize(
    ("spark", "text"),
    SCALARS + NESTED,
)
def test_a_new_table_gets_the_paimon_type_of_each_spark_type_and_back(
    spark: st.DataType, text: str
) -> None:
    (field,) = to_data_fields(st.StructType([st.StructField("c", spark)]))
    assert str(field.type) == str(parse_type(text))
    assert spark_type(field.type) == spark


def test_nullability_comment_and_varchar_length_reach_the_new_table() -> None:
    made = to_data_fields(
        st.StructType(
            [
                st.StructField("a", st.VarcharType(7), False),
                st.StructField("b", st.CharType(3), True, {"comment": "three"}),
            ]
        )
    )
    assert [str(field.type) for field in made] == ["VARCHAR(7) NOT NULL", "CHAR(3)"]
    assert [field.description for field in made] == [None, "three"]


def test_an_interval_column_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"'i'.*interval"):
        to_data_fields(struct(i=st.DayTimeIntervalType()))


@pytest.mark.spark35
def test_up_casts_are_those_of_spark_but_for_the_guessing_ones(spark_session: SparkSession) -> None:
    session: Any = spark_session
    cast = session.sparkContext._jvm.org.apache.spark.sql.catalyst.expressions.Cast
    kinds = [spark for spark, _ in SCALARS] + [st.NullType()]
    java = [session._jsparkSession.parseDataType(kind.json()) for kind in kinds]
    for source, java_source in zip(kinds, java, strict=True):
        for target, java_target in zip(kinds[:-1], java[:-1], strict=True):
            pair = (source.simpleString(), target.simpleString())
            expected = cast.canUpCast(java_source, java_target) and pair not in REFUSED_UP_CASTS
            assert can_up_cast(source, target) is bool(expected), pair


@pytest.mark.spark35
def test_columns_match_by_name_in_any_order_and_case_and_are_up_cast(
    spark_session: SparkSession,
) -> None:
    schema = schema_of(("a", "BIGINT"), ("B.x`", "DECIMAL(10, 2)"), ("c", "STRING"), ("d", "DATE"))
    frame = spark_session.createDataFrame(
        [(Decimal("1.5"), 3, datetime.date(2020, 1, 2))],
        st.StructType(
            [
                st.StructField("b.X`", st.DecimalType(4, 1)),
                st.StructField("A", st.IntegerType()),
                st.StructField("D", st.DateType()),
            ]
        ),
    )
    alignment = align(
        frame.schema, schema, case_sensitive=False, location="t", missing_are_null=True
    )
    made = project(frame, alignment)
    assert made.schema.names == ["a", "B.x`", "c", "d"]
    assert [f.dataType for f in made.schema.fields] == [spark_type(f.type) for f in schema.fields]
    assert made.collect() == [
        Row(**{"a": 3, "B.x`": Decimal("1.50"), "c": None, "d": datetime.date(2020, 1, 2)})
    ]


@pytest.mark.spark35
def test_a_dataframe_that_has_the_columns_already_is_taken_as_it_is(
    spark_session: SparkSession,
) -> None:
    frame = spark_session.createDataFrame([(1, "x")], "a int, b string")
    for columns, same in (
        ((("a", "INT"), ("b", "STRING")), True),
        ((("a", "INT"), ("B", "STRING")), False),
        ((("b", "STRING"), ("a", "INT")), False),
        ((("a", "BIGINT"), ("b", "STRING")), False),
        ((("a", "INT"), ("b", "STRING"), ("c", "INT")), False),
    ):
        schema = schema_of(*columns)
        alignment = align(
            frame.schema, schema, case_sensitive=False, location="t", missing_are_null=True
        )
        made = project(frame, alignment)
        assert (made is frame) == same
        assert made.columns == [name for name, _ in columns]


def test_a_column_with_a_default_may_be_lacking_and_is_filled_where_it_is_written(
    spark_session: SparkSession,
) -> None:
    fields = (
        DataField(id=0, name="a", type=parse_type("INT")),
        DataField(id=1, name="b", type=parse_type("INT NOT NULL"), default_value="7"),
    )
    schema = TableSchema(id=0, fields=fields, highest_field_id=1)
    frame = spark_session.createDataFrame([(1,)], "a int")
    made = project(frame, align(frame.schema, schema, case_sensitive=False, location="t"))
    assert made.collect() == [Row(a=1, b=None)]
    batch = pa.record_batch({"a": pa.array([1], pa.int32()), "b": pa.nulls(1, pa.int32())})
    assert ColumnPlan.of(schema).conform(batch).to_pylist() == [{"a": 1, "b": 7}]


def test_nested_columns_are_up_cast_part_by_part() -> None:
    def array(element: st.DataType) -> st.DataType:
        return st.ArrayType(st.MapType(st.IntegerType(), struct(a=element)))

    assert can_up_cast(array(st.IntegerType()), array(st.LongType()))
    assert not can_up_cast(array(st.LongType()), array(st.IntegerType()))
    assert not can_up_cast(struct(a=st.IntegerType()), struct(b=st.IntegerType()))
    assert not can_up_cast(st.ArrayType(st.IntegerType()), st.IntegerType())


def test_with_case_sensitivity_another_case_is_another_column() -> None:
    error = refused(struct(A=st.IntegerType()), schema_of(("a", "INT")), case_sensitive=True)
    assert "no column 'A'" in error.message


def test_names_that_differ_in_case_only_are_ambiguous() -> None:
    frame = struct(a=st.IntegerType(), A=st.IntegerType())
    assert "one name here" in refused(frame, schema_of(("a", "INT"))).message
    alignment = align(
        frame, schema_of(("a", "INT"), ("A", "INT")), case_sensitive=True, location="t"
    )
    assert [source and source.name for _, source in alignment.columns] == ["a", "A"]


def test_all_misfits_are_named_in_one_error() -> None:
    schema = schema_of(("id", "BIGINT NOT NULL"), ("amount", "INT"), ("ts", "TIMESTAMP(6)"))
    frame = struct(amount=st.LongType(), ts=st.TimestampType(), amuont2=st.LongType())
    error = refused(frame, schema)
    assert error.context["columns"] == ("amuont2", "id", "amount", "ts")
    for part in ("lacks column 'id'", "'amount' is bigint", "did you mean 'amount'", "time zone"):
        assert part in error.message


def test_a_missing_key_column_is_refused_even_where_it_is_nullable() -> None:
    schema = schema_of(("id", "INT"), ("dt", "STRING"), keys=("dt",))
    assert refused(struct(id=st.IntegerType()), schema).context["column"] == "dt"
    bucketed = schema_of(("id", "INT"), ("v", "INT"), **{"bucket": "2", "bucket-key": "id"})
    assert refused(struct(v=st.IntegerType()), bucketed).context["column"] == "id"


@pytest.mark.spark35
def test_pyspark_takes_every_pandas_that_the_extra_allows_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    (allowed,) = re.findall(r'"pandas(>.*?)"', project)
    low, high = re.fullmatch(r">=([\d.]+),<(\d+)", allowed or "").groups()  # type: ignore[union-attr]
    for version in (f"{low}.0", f"{int(high) - 1}.99.0"):
        monkeypatch.setattr(pd, "__version__", version)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Spark 3.5 compares versions with a module that is deprecated itself, whatever the
            # version.
            warnings.filterwarnings("ignore", "distutils Version", DeprecationWarning)
            require_minimum_pandas_version()


def test_a_schema_that_does_not_fit_says_when_the_table_was_altered() -> None:
    """A stream that fitted yesterday fails today: its user looks for what has changed."""
    frame = st.StructType().add("a", st.StringType())
    old = schema_of(("a", "INT"))
    with pytest.raises(IncompatibleSchema) as refused:
        align(frame, old, case_sensitive=False, location="t")
    assert "altered" not in str(refused.value)
    with pytest.raises(
        IncompatibleSchema, match=r"last altered at 2026-11-22 17:00:00 UTC \(schema 3\)\."
    ):
        align(
            frame,
            replace(old, id=3, time_millis=1_795_366_800_123),
            case_sensitive=False,
            location="t",
        )
