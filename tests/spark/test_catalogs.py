"""Tables by name: a catalog of the Spark session, and a sink that takes one."""

from __future__ import annotations

import logging
import pickle
import sqlite3
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, catalog, errors, register_views
from tests.kits.spark_jobs import Job
from tests.servers.rest_double import RestDouble

SECRET = "s3cr3t-never-shown"


@pytest.fixture
def named(spark_session: SparkSession, job: Job) -> Iterator[Job]:
    options = {
        "": "org.apache.paimon.spark.SparkCatalog",
        ".warehouse": str(job.root),
        ".table-default.bucket": "-1",
    }
    for name, value in {**options, ".token": SECRET, ".s3.secret-key": SECRET}.items():
        spark_session.conf.set(f"spark.sql.catalog.shop_paimon{name}", value)
    spark_session.conf.set("spark.sql.catalog.shop_paimon2.warehouse", "/elsewhere")
    yield job
    for name in (*options, ".token", ".s3.secret-key"):
        spark_session.conf.unset(f"spark.sql.catalog.shop_paimon{name}")
    spark_session.conf.unset("spark.sql.catalog.shop_paimon2.warehouse")


@pytest.mark.spark35
def test_a_sink_writes_a_table_by_its_name_in_a_catalog_of_the_session(
    named: Job, caplog: object
) -> None:
    assert isinstance(caplog, pytest.LogCaptureFixture)
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "py4j"):
        shop = catalog(named.spark, "shop_paimon")
        by_name = PaimonSink("shop.orders", catalog="shop_paimon", on_commit=named.reports.append)
    assert SECRET not in caplog.text + repr(shop) + repr(by_name)
    assert shop.warehouse == catalog("shop_paimon").warehouse == str(named.root)
    assert shop.table_defaults == {"bucket": "-1"}
    shop.create_database("shop", ignore_if_exists=True)
    shop.create_table("shop.orders", [("id", "BIGINT"), ("day", "STRING")])
    named.add_files(1)
    named.run(by_name)
    assert named.ids() == list(range(6))
    with pytest.raises(errors.InvalidOption, match=r"spark\.sql\.catalog"):
        PaimonSink("shop.orders", catalog="shop_paimon3")
    with pytest.raises(errors.InvalidOption, match=r"database\.table"):
        PaimonSink(str(named.table), catalog="shop_paimon")


def test_a_sink_of_a_catalog_in_a_store_takes_its_own_options_first() -> None:
    options = {"warehouse": "s3://bucket/wh", "s3.region": "eu-central-1"}
    of_store = PaimonSink(
        "`my.db`.t$branch_b", catalog=options, storage_options={"s3.region": "us-east-1"}
    )
    assert repr(of_store) == "PaimonSink('s3://bucket/wh/my.db.db/t$branch_b')"
    assert of_store.__getstate__().storage_options == {"s3.region": "us-east-1"}


@pytest.mark.full
def test_a_data_source_finds_a_table_by_its_name_in_a_warehouse(job: Job) -> None:
    if not hasattr(job.spark, "dataSource"):
        pytest.skip("data sources in Python need pyspark 4.0")
    from paimon_stream import register

    register(job.spark)
    shop = catalog({"warehouse": str(job.root)})
    shop.create_database("shop")
    shop.create_table("shop.orders", [("id", "BIGINT")])
    rows = job.spark.range(3).write.format("paimon_stream").mode("append")
    rows.option("warehouse", shop.warehouse).save("shop.orders")
    read = job.spark.read.format("paimon_stream").option("warehouse", shop.warehouse)
    assert sorted(row.id for row in read.load("shop.orders").collect()) == [0, 1, 2]
    assert sorted(row.id for row in read.load(shop.location("shop.orders")).collect()) == [0, 1, 2]
    with pytest.raises(Exception, match=r"InvalidOption: 'orders' is not the name of a table"):
        read.load("orders")


@pytest.mark.full
def test_streams_and_the_data_source_take_the_lock_of_a_jdbc_catalog(
    job: Job, caplog: object
) -> None:
    pytest.importorskip("sqlalchemy")
    database = f"{job.root}/catalog.db"
    options = {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{database}",
        "warehouse": str(job.root),
        "lock.enabled": "true",
        "jdbc.user": "user",
        "jdbc.password": SECRET,
    }
    with pytest.raises(errors.NotFound, match="no database 'shop'"):
        PaimonSink("shop.orders", catalog=options)
    shop = catalog(options)
    shop.create_database("shop")
    shop.create_table("shop.orders", [("id", "BIGINT"), ("day", "STRING")])

    def taken() -> list[tuple[str]]:
        with sqlite3.connect(database) as connection:
            return connection.execute("SELECT * FROM taken").fetchall()

    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE taken(id TEXT)")
        note = "BEGIN INSERT INTO taken VALUES (new.lock_id); END"
        connection.execute(f"CREATE TRIGGER note AFTER INSERT ON paimon_distributed_locks {note}")
    for name, value in options.items():
        job.spark.conf.set(f"spark.sql.catalog.with_rows.{name}", value)
    job.add_files(2)
    sink = PaimonSink("shop.orders", catalog="with_rows", on_commit=job.reports.append)
    job.run(sink)
    for name in options:
        job.spark.conf.unset(f"spark.sql.catalog.with_rows.{name}")
    assert job.ids() == list(range(12))
    assert taken() == [("jdbc.shop.orders",)] * 2
    assert SECRET not in repr(sink) + repr(shop) + str(caplog)
    if not hasattr(job.spark, "dataSource"):
        return
    from paimon_stream import register

    register(job.spark)
    rows = (
        job.spark.range(3)
        .selectExpr("id", "'x' AS day")
        .write.format("paimon_stream")
        .mode("append")
    )
    rows.options(**options).save("shop.orders")
    assert taken() == [("jdbc.shop.orders",)] * 3
    assert (
        job.spark.read.format("paimon_stream").options(**options).load("shop.orders").count() == 15
    )
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT * FROM paimon_distributed_locks").fetchall() == []


@pytest.fixture
def served(spark_session: SparkSession, job: Job) -> Iterator[RestDouble]:
    pytest.importorskip("urllib3")
    with RestDouble(str(job.root / "served")) as server:
        names = {
            f"spark.sql.catalog.served.{key}": value for key, value in server.options().items()
        }
        for name, value in names.items():
            spark_session.conf.set(name, value)
        shop = catalog("served")
        shop.create_database("shop")
        shop.create_table("shop.orders", [("id", "BIGINT"), ("day", "STRING")])
        yield server
        for name in names:
            spark_session.conf.unset(name)


@pytest.mark.full
def test_a_sink_writes_a_table_of_a_rest_catalog_each_batch_once(
    served: RestDouble, job: Job
) -> None:
    sink = PaimonSink("shop.orders", catalog="served", on_commit=job.reports.append)
    assert served.token not in repr(sink) + repr(pickle.loads(pickle.dumps(sink)).__getstate__())
    served.faults += ["lose", "503"]
    job.add_files(3)
    job.run(sink)
    job.forget_last_batch()
    again = PaimonSink("shop.orders", catalog="served")
    job.run(again)
    shop = catalog("served").get_table("shop.orders")
    assert sorted(row["id"] for row in shop.to_arrow().to_pylist()) == list(range(18))
    assert [one["id"] for one in served.table("shop.orders").seen] == [1, 2, 3]
    assert sorted(row.id for row in shop.to_spark(job.spark).collect()) == list(range(18))
    secret = served.token.encode()
    files = [
        one
        for folder in (job.root / "checkpoint", job.root / "served")
        for one in folder.rglob("*")
    ]
    assert not any(secret in one.read_bytes() for one in files if one.is_file())


def test_a_sink_does_not_merge_schemas_of_a_rest_catalog(served: RestDouble, job: Job) -> None:
    narrow = catalog("served")
    narrow.create_table("shop.narrow", [("id", "BIGINT")])
    job.add_files(1)
    sink = PaimonSink(
        "shop.narrow", catalog="served", options={"paimon-stream.merge-schema": "true"}
    )
    assert "alter_table" in job.run_failing(sink)
    assert served.table("shop.narrow").seen == []


@pytest.mark.full
def test_a_data_source_finds_a_table_of_a_rest_catalog(served: RestDouble, job: Job) -> None:
    if not hasattr(job.spark, "dataSource"):
        pytest.skip("data sources in Python need pyspark 4.0")
    from paimon_stream import register

    register(job.spark)
    options = served.options()
    rows = (
        job.spark.range(3)
        .selectExpr("id", "'a' as day")
        .write.format("paimon_stream")
        .mode("append")
    )
    rows.options(**options).save("shop.orders")
    read = job.spark.read.format("paimon_stream").options(**options)
    assert sorted(row.id for row in read.load("shop.orders").collect()) == [0, 1, 2]
    job.add_files(2)
    stream = job.stream().writeStream.format("paimon_stream").options(**options)
    stream = stream.option("checkpointLocation", str(job.checkpoint)).trigger(availableNow=True)
    stream.start("shop.orders").awaitTermination(900)
    assert read.load("shop.orders").count() == 15
    assert len(served.table("shop.orders").seen) == 3
    assert register_views(job.spark, "served") == ["shop.orders"]
    assert job.spark.table("shop.orders").count() == 15
    job.spark.sql("DROP DATABASE shop CASCADE")
