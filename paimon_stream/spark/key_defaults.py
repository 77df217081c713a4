"""Paimon's values as Spark literals, and the defaults of key columns.

When rows are written, NULL becomes the default of its column. In a key column that must happen earlier,
because the key decides to which task a row is moved and how rows are sorted.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions

from paimon_stream.format.types import DataType
from paimon_stream.spark.types import named, spark_type
from paimon_stream.table.table import Table
from paimon_stream.write.conform import default_of


def with_key_defaults(frame: DataFrame, table: Table) -> DataFrame:
    """The rows, with NULLs in partition and key columns replaced by the columns' defaults, if any."""
    schema = table.schema
    for name in dict.fromkeys((*schema.partition_keys, *schema.primary_keys)):
        one = schema.field(name)
        default = default_of(one, table.location)
        if default is not None:
            given = named(name)
            frame = frame.withColumn(name, functions.coalesce(given, literal(one.type, default)))
    return frame


def literal(type_: DataType, value: pa.Scalar) -> Column:
    """The value as a column. Timestamps, dates and decimals are passed as text, so that no time zone and no
    rounding changes them."""
    plain: Any = None
    if value.is_valid:
        target = value.type
        if pa.types.is_time(target):
            plain = value.cast(pa.int32()).as_py()
        elif pa.types.is_timestamp(target):
            naive = value.cast(pa.timestamp("us", target.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
            plain = naive.as_py().isoformat() + ("Z" if target.tz else "")
        elif pa.types.is_date(target) or pa.types.is_decimal(target):
            plain = str(value.as_py())
        else:
            plain = value.as_py()
    return functions.lit(plain).cast(spark_type(type_))
