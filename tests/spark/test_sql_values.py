"""Spark computes the values of SQL text that the list of cases has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.kits.sql_cases import CASES, ERROR, ROWS, SPARK_TYPES


@pytest.fixture
def rows(spark_session: SparkSession) -> Iterator[DataFrame]:
    """The rows of the cases, in a session in ANSI mode."""
    spark_session.sparkContext.setLogLevel("OFF")
    session = spark_session.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # Spark would compute a division that two columns have before it looks at their conditions.
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    values = [tuple(row.values()) for row in ROWS.to_pylist()]
    described = ", ".join(f"{name} {type_}" for name, type_ in SPARK_TYPES.items())
    yield session.createDataFrame(values, described).coalesce(1).cache()
    spark_session.catalog.clearCache()


def test_the_values_are_those_of_spark(rows: DataFrame) -> None:
    computed = {text: values for text, values in CASES.items() if values != ERROR}
    answer = rows.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(computed))).collect()
    for i, (text, values) in enumerate(computed.items()):
        assert repr([_plain(row[i]) for row in answer]) == repr(values), text


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.full
def test_what_is_an_error_here_is_one_in_spark(rows: DataFrame) -> None:
    for text in (text for text, values in CASES.items() if values == ERROR):
        with pytest.raises(PySparkException):
            rows.selectExpr(f"{text} AS x").collect()
