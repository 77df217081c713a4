"""Tables by their names in Spark SQL, after `register_views`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import paimon_stream
from paimon_stream import PaimonCatalog, catalog, errors, register_views
from tests.kits.spark_jobs import Job

pytestmark = pytest.mark.spark4

SECRET = "s3cr3t-never-shown"
HAS_SOURCES = hasattr(SparkSession, "dataSource")
needs_sources = pytest.mark.skipif(
    not HAS_SOURCES, reason="data sources in Python need pyspark 4.0"
)


@pytest.fixture
def shop(job: Job) -> Iterator[PaimonCatalog]:
    """A catalog with a database `sqlshop`, whose names in Spark go with it."""
    warehouse = catalog({"warehouse": str(job.root)})
    warehouse.create_database("sqlshop")
    yield warehouse
    job.spark.sql("DROP DATABASE IF EXISTS sqlshop CASCADE")


def ids(spark: SparkSession, query: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(query).collect())


def told(spark: SparkSession, query: str) -> str:
    with pytest.raises(PySparkException) as caught:
        spark.sql(query).collect()
    return str(caught.value)


@needs_sources
def test_each_query_reads_the_newest_snapshot_and_inserts_are_appended(
    job: Job, shop: PaimonCatalog, java: Any
) -> None:
    spark = job.spark
    orders = shop.create_table(
        "sqlshop.orders",
        [("id", "BIGINT NOT NULL"), ("lines", "ARRAY<ROW<`the sku` STRING, n INT>>")],
    )
    shop.create_table("sqlshop.select", [("id", "BIGINT"), ("who", "STRING")])
    assert register_views(spark, job.root) == ["sqlshop.orders", "sqlshop.select"]
    query = "SELECT id FROM sqlshop.orders"
    assert ids(spark, query) == []
    spark.sql("INSERT INTO sqlshop.orders VALUES (1, array(struct('a', 2)))")
    assert ids(spark, query) == [1]
    orders.append(spark.createDataFrame([(2, [("b", 3)])], orders_columns()))
    assert ids(spark, query) == [1, 2]
    assert ids(spark, "SELECT lines[0].`the sku` FROM sqlshop.orders WHERE id > 1") == ["b"]
    spark.sql("INSERT INTO sqlshop.`select` VALUES (2, 'x')")
    joined = "SELECT o.id FROM sqlshop.orders o JOIN sqlshop.`SELECT` s ON o.id = s.id"
    assert ids(spark, joined) == [2]
    assert ids(spark, f"{query} WITH (`snapshot-id` = '1')") == [1]
    assert ids(spark, f"{query} WITH (`where` = 'id > 1')") == [2]
    assert "sqlshop.orders is the name of a table" in told(spark, f"{query} WITH (columns = 'id')")
    spark.sql("INSERT OVERWRITE sqlshop.orders SELECT 3L, NULL")
    assert ids(spark, query) == [3]
    assert [row["id"] for row in java.read(Path(orders.location))] == [3]


def orders_columns() -> str:
    return "id bigint not null, lines array<struct<`the sku`: string, n: int>>"


@needs_sources
def test_a_second_call_follows_the_catalog(
    job: Job, shop: PaimonCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    spark = job.spark
    for table in ("orders", "gone", "Orders", "with-dash"):
        shop.create_table(f"sqlshop.{table}", [("id", "BIGINT")])
    broken = Path(shop.create_table("sqlshop.broken", [("id", "BIGINT")]).location)
    (broken / "schema" / "schema-0").write_text("{")
    with caplog.at_level(logging.WARNING, "paimon_stream"):
        assert register_views(spark, shop) == ["sqlshop.Orders", "sqlshop.gone"]
    for left_out in ("sqlshop.orders", "sqlshop.with-dash", "sqlshop.broken: it cannot be read"):
        assert f"leaves out {left_out}" in caplog.text
    spark.sql("INSERT INTO sqlshop.orders VALUES (1)")
    shop.alter_table("sqlshop.Orders", [paimon_stream.SchemaChange.add_column("note", "STRING")])
    shop.drop_table("sqlshop.gone")
    assert "NotFound" in told(spark, "SELECT * FROM sqlshop.gone")
    assert spark.table("sqlshop.orders").columns == ["id"]
    other = spark.newSession()
    assert register_views(other, shop, databases=["sqlshop"]) == ["sqlshop.Orders"]
    assert other.sql("SELECT * FROM sqlshop.orders").collect() == [(1, None)]
    assert "TABLE_OR_VIEW_NOT_FOUND" in told(spark, "SELECT * FROM sqlshop.gone")
    assert register_views(spark, shop) == ["sqlshop.Orders"]
    assert spark.table("sqlshop.orders").columns == ["id", "note"]


@needs_sources
def test_no_table_and_no_name_of_others_is_touched(
    job: Job, shop: PaimonCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    spark = job.spark
    location = shop.create_table("sqlshop.orders", [("id", "BIGINT")]).location
    spark.sql("CREATE DATABASE sqlshop")
    spark.sql("CREATE VIEW sqlshop.orders AS SELECT 7L AS id")
    with caplog.at_level(logging.WARNING, "paimon_stream"):
        assert register_views(spark, shop) == []
    assert "Spark has another table or view of this name" in caplog.text
    assert ids(spark, "SELECT * FROM sqlshop.orders") == [7]
    spark.sql("DROP VIEW sqlshop.orders")
    assert register_views(spark, shop) == ["sqlshop.orders"]
    spark.sql("DROP TABLE sqlshop.orders")
    spark.sql("DROP DATABASE sqlshop CASCADE")
    assert shop.get_table("sqlshop.orders").location == location
    spark.sql(f"CREATE DATABASE sqlshop LOCATION '{Path(location).parent}'")
    with pytest.raises(errors.InvalidOption, match="DROP DATABASE would delete"):
        register_views(spark, shop)


@needs_sources
def test_drop_database_never_deletes_tables(job: Job, shop: PaimonCatalog) -> None:
    """Also not those that come after `register_views`, and those that have no name in SQL."""
    spark = job.spark
    spark.sql(f"CREATE DATABASE sqlshop LOCATION '{job.root}/sqlshop.db'")
    with pytest.raises(errors.InvalidOption, match="DROP DATABASE would delete"):
        register_views(spark, shop)
    shop.create_table("sqlshop.with-dash", [("id", "BIGINT")])
    with pytest.raises(errors.InvalidOption, match="DROP DATABASE would delete"):
        register_views(spark, shop)
    spark.sql("DROP DATABASE sqlshop")
    odd = catalog({"warehouse": f"{job.root}/a #b?c%20d"})
    odd.create_database("sqlshop")
    spark.sql(f"CREATE DATABASE sqlshop LOCATION '{odd.warehouse}/sqlshop.db/orders'")
    with pytest.raises(errors.InvalidOption, match="DROP DATABASE would delete"):
        register_views(spark, odd)
    of_spark = catalog({"warehouse": spark.conf.get("spark.sql.warehouse.dir")})
    of_spark.create_database("SqlShop2")
    spark.conf.set("spark.sql.caseSensitive", "true")  # so Spark does not write its folder small
    try:
        with pytest.raises(errors.InvalidOption, match=r"SqlShop2\.db overlap"):
            register_views(spark, of_spark, databases=["SqlShop2"])
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
        of_spark.drop_database("SqlShop2")


@needs_sources
def test_names_that_spark_does_not_tell_apart_harm_no_other(
    job: Job, shop: PaimonCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    spark = job.spark
    shop.create_database("SqlShop")
    shop.create_table("SqlShop.orders", [("id", "BIGINT")])
    shop.create_table("sqlshop.both", [("a", "BIGINT"), ("A", "BIGINT")])
    shop.create_table("sqlshop.customers", [("id", "BIGINT")])
    for _ in range(2):
        assert register_views(spark, shop) == ["SqlShop.orders", "sqlshop.customers"]
        assert ids(spark, "SELECT * FROM sqlshop.orders") == []
    assert "leaves out sqlshop.both: Spark refuses it: [COLUMN_ALREADY_EXISTS]" in caplog.text


@needs_sources
def test_the_name_of_a_warehouse_that_is_gone_can_be_dropped(
    job: Job, shop: PaimonCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    moved = catalog({"warehouse": str(job.root / "moved")})
    for warehouse, number in ((shop, 1), (moved, 2)):
        warehouse.create_database("sqlshop", ignore_if_exists=True)
        rows = job.spark.range(number, number + 1)
        warehouse.create_table("sqlshop.orders", [("id", "BIGINT")]).append(rows)
    moved.create_database("global_temp")
    assert register_views(job.spark, shop) == ["sqlshop.orders"]
    assert register_views(job.spark, moved) == []
    assert ids(job.spark, "SELECT * FROM sqlshop.orders") == [1]
    other = job.spark.newSession()
    assert register_views(other, moved) == []
    other.sql("DROP TABLE sqlshop.orders")
    assert register_views(other, moved) == ["sqlshop.orders"]
    assert ids(other, "SELECT * FROM sqlshop.orders") == [2]
    assert "leaves out database 'global_temp': Spark refuses it" in caplog.text


@needs_sources
@pytest.mark.parametrize("folder", ["moved", "a #b?c%20d"])
def test_a_name_never_means_the_table_of_another_warehouse(
    job: Job, shop: PaimonCatalog, folder: str
) -> None:
    """Two sessions have one catalog of Spark, and each of them data sources of its own."""
    spark = job.spark
    moved = catalog({"warehouse": str(job.root / folder)})
    tables = []
    for warehouse, number in ((shop, 1), (moved, 2)):
        warehouse.create_database("sqlshop", ignore_if_exists=True)
        tables.append(warehouse.create_table("sqlshop.orders", [("id", "BIGINT")]))
        tables[-1].append(spark.range(number, number + 1))
    query = "SELECT * FROM sqlshop.orders"
    assert register_views(spark, shop) == ["sqlshop.orders"]
    assert ids(spark, query) == [1]
    spark.sql("DROP TABLE sqlshop.orders")
    other = spark.newSession()
    for _ in range(2):
        assert register_views(other, moved) == ["sqlshop.orders"]
    assert ids(other, query) == [2]
    for statement in (query, "INSERT INTO sqlshop.orders VALUES (3)"):
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):  # py4j's or Spark's own
            spark.sql(statement).collect()
    assert register_views(spark, shop) == []
    assert "warehouse that this session has not registered" in told(spark, query)
    assert [table.to_arrow()["id"].to_pylist() for table in tables] == [[1], [2]]
    spark.sql("DROP TABLE sqlshop.orders")
    assert register_views(spark, shop) == ["sqlshop.orders"]
    assert ids(spark, query) == [1]
    moved.drop_table("sqlshop.orders")
    assert register_views(other, moved) == []
    assert ids(spark, query) == [1]


@needs_sources
def test_a_wrong_warehouse_is_named(job: Job, shop: PaimonCatalog) -> None:
    with pytest.raises(errors.NotFound, match=f"no database in {job.root}/wrong"):
        register_views(job.spark, f"{job.root}/wrong")
    with pytest.raises(errors.NotFound, match="no database 'wrong'"):
        register_views(job.spark, shop, databases=["wrong"])
    with pytest.raises(errors.InvalidOption, match="databases is 'sqlshop'"):
        register_views(job.spark, shop, databases="sqlshop")
    with pytest.raises(errors.InvalidOption, match=r"spark\.sql\.catalog"):
        register_views(job.spark, "no_catalog")


@needs_sources
def test_create_table_is_refused_with_the_way_out(job: Job, shop: PaimonCatalog) -> None:
    paimon_stream.register(job.spark)
    location = shop.create_table("sqlshop.orders", [("id", "BIGINT")]).location
    job.spark.sql("CREATE DATABASE sqlshop")
    for place in (f"LOCATION '{location}'", f"OPTIONS (path '{location}')"):
        refusal = told(job.spark, f"CREATE TABLE sqlshop.orders USING paimon_stream {place}")
        assert "UnsupportedFeature: CREATE TABLE" in refusal
        assert "register_views" in refusal
    assert job.spark.sql("SHOW TABLES IN sqlshop").count() == 0
    # Spark asks nobody where the columns are given.
    job.spark.sql(f"CREATE TABLE sqlshop.t(id bigint) USING paimon_stream LOCATION '{location}'")
    assert "register_views" in told(job.spark, "SELECT * FROM sqlshop.t")


@pytest.fixture
def named(job: Job, shop: PaimonCatalog, caplog: pytest.LogCaptureFixture) -> Job:
    """A job whose session has had the catalog `sqlnames`, with a secret, when it registered."""
    spark = job.spark
    shop.create_table("sqlshop.orders", [("id", "BIGINT"), ("day", "STRING")])
    options = {"warehouse": str(job.root), "table-default.bucket": "2", "s3.secret-key": SECRET}
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.sqlnames.{key}", value)
    try:
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "py4j"):
            paimon_stream.register(spark)
            assert register_views(spark, "sqlnames") == ["sqlshop.orders"]
    finally:
        for key in options:
            spark.conf.unset(f"spark.sql.catalog.sqlnames.{key}")
    return job


@needs_sources
def test_the_secrets_of_a_catalog_are_shown_nowhere(
    named: Job, caplog: pytest.LogCaptureFixture
) -> None:
    spark = named.spark
    assert ids(spark, "SELECT id FROM sqlshop.orders") == []
    for wrong in ({"catalog": "other"}, {"catalog": "sqlnames", "warehouse": str(named.root)}):
        with pytest.raises(PySparkException, match=r"errors\.InvalidOption") as caught:
            spark.read.format("paimon_stream").options(**wrong).load("sqlshop.orders").count()
        assert SECRET not in str(caught.value)
    read = spark.read.format("paimon_stream").option("catalog", "sqlnames").load("sqlshop.orders")
    read.createOrReplaceTempView("by_catalog")
    shown = spark.sql("EXPLAIN EXTENDED SELECT * FROM sqlshop.orders, by_catalog").collect()
    shown += spark.sql("SHOW TABLE EXTENDED IN sqlshop LIKE '*'").collect()
    spark.catalog.dropTempView("by_catalog")
    assert SECRET not in f"{shown} {caplog.text}"


@needs_sources
@pytest.mark.full
def test_a_catalog_of_the_session_is_an_option(named: Job) -> None:
    job, spark = named, named.spark
    rows = spark.range(3).selectExpr("id", "'d' AS day").write.format("paimon_stream")
    rows.mode("append").option("catalog", "sqlnames").save("sqlshop.orders")
    read = spark.read.format("paimon_stream").option("catalog", "sqlnames")
    assert read.load("sqlshop.orders").count() == 3
    job.add_files(1)
    writer = job.stream().writeStream.format("paimon_stream").option("catalog", "sqlnames")
    writer = writer.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    writer.start("sqlshop.orders").awaitTermination(900)
    stream = spark.readStream.format("paimon_stream").option("catalog", "sqlnames")
    assert stream.load("sqlshop.orders").columns == ["id", "day"]
    assert spark.sql("SELECT count(*) FROM sqlshop.orders").first() == (9,)


@pytest.mark.spark35
@pytest.mark.skipif(HAS_SOURCES, reason="Spark 4.0 has names that read the newest snapshot")
def test_spark_35_is_refused_with_the_way_out(job: Job) -> None:
    table = job.create([("id", "BIGINT")])
    with pytest.raises(errors.UnsupportedFeature, match=r"to_spark\(spark\)"):
        register_views(job.spark, job.root)
    for number in range(2):
        table.append(job.spark.range(number, number + 1))
        job.load().to_spark(job.spark).createOrReplaceTempView("orders")
        assert job.spark.table("orders").count() == number + 1
