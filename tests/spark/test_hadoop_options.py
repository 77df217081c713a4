"""Spark's own configuration of object stores, as the driver reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paimon_stream.spark.active_session import open_beside_spark
from paimon_stream.spark.hadoop_options import hadoop_options
from paimon_stream.spark.sink_settings import SinkSettings

SECRET = "s3cr3t-never-shown"
GIVEN = {
    "fs.s3a.access.key": "AKIDTESTONLY",
    "fs.s3a.secret.key": SECRET,
    "fs.s3a.endpoint": "http://127.0.0.1:9",
    "fs.azure.account.key.acc.dfs.core.windows.net": SECRET,
}


@pytest.fixture
def session(spark_session: SparkSession) -> Iterator[SparkSession]:
    configuration = spark_session.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    for name, value in GIVEN.items():
        configuration.set(name, value)
    yield spark_session
    for name in GIVEN:
        configuration.unset(name)


@pytest.mark.spark35
def test_what_was_set_is_read_and_hadoops_defaults_are_not(session: SparkSession) -> None:
    found = hadoop_options(session)
    assert found.items() >= GIVEN.items()
    assert "fs.s3a.path.style.access" not in found
    session.conf.set("fs.gs.auth.type", "UNAUTHENTICATED")
    try:
        assert hadoop_options(session)["fs.gs.auth.type"] == "UNAUTHENTICATED"
    finally:
        session.conf.unset("fs.gs.auth.type")


@pytest.mark.spark35
def test_no_log_of_py4j_has_the_secrets(
    session: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "py4j"):
        session.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
        before = len(caplog.records)
        found = hadoop_options(session)
        session.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    assert found["fs.s3a.secret.key"] == SECRET
    assert len(caplog.records) > before > 0
    assert SECRET not in caplog.text


def test_a_sink_and_a_table_take_them_for_stores_only(session: SparkSession) -> None:
    pytest.importorskip("obstore")
    settings = SinkSettings(location="s3a://bucket/t", token="t", session=session)
    storage: Any = settings.open_storage()
    assert storage.settings.config["secret_access_key"] == SECRET
    assert storage.settings.config["endpoint"] == "http://127.0.0.1:9"
    assert SECRET not in repr(settings) + repr(storage)
    beside: Any = open_beside_spark("s3a://bucket/t")
    assert beside.settings == storage.settings
    own: Any = open_beside_spark("s3a://bucket/t", {"s3.access-key": "own", "s3.secret-key": "k"})
    assert own.settings.config["access_key_id"] == "own"
    off = {"paimon-stream.store.from-spark": "false"}
    switched: Any = SinkSettings(
        location="s3a://bucket/t", token="t", options=off, session=session
    ).open_storage()
    assert "endpoint" not in switched.settings.config


def test_a_thread_without_a_session_of_its_own_takes_the_processs(session: SparkSession) -> None:
    pytest.importorskip("obstore")
    opened: list[Any] = []
    thread = Thread(target=lambda: opened.append(open_beside_spark("s3a://bucket/t")))
    thread.start()
    thread.join()
    assert opened[0].settings.config["secret_access_key"] == SECRET


def test_on_connect_the_sessions_own_settings_are_read() -> None:
    every = {
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "fs.s3a.access.key": "id",
        "spark.app.name": "x",
    }
    connect = SimpleNamespace(conf=SimpleNamespace(getAll=every))
    assert hadoop_options(connect) == {"fs.s3a.secret.key": SECRET, "fs.s3a.access.key": "id"}
    assert hadoop_options(SimpleNamespace(conf=SimpleNamespace())) == {}
    assert hadoop_options(SimpleNamespace()) == {}
