"""Tables of a Hive Metastore by their names: a sink, the data source, names in Spark SQL, and the
terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, catalog
from paimon_stream.cli.app import cli
from tests.kits.hive import HiveMetastore
from tests.kits.spark_jobs import Job

pytestmark = pytest.mark.hive

DATABASE = f"doors{os.getpid()}"


@pytest.fixture
def named(spark_session: SparkSession, hive_metastore: HiveMetastore) -> Iterator[SparkSession]:
    """A session with a catalog, as Java's is configured. The metastore chooses the warehouse."""
    prefix = "spark.sql.catalog.of_hive"
    options = {".metastore": "hive", ".uri": hive_metastore.uri}
    for name, value in options.items():
        spark_session.conf.set(f"{prefix}{name}", value)
    yield spark_session
    for name in options:
        spark_session.conf.unset(f"{prefix}{name}")


def test_every_door_leads_to_a_table_of_the_metastore(
    named: SparkSession, job: Job, hive_metastore: HiveMetastore, tmp_path: Path, monkeypatch: Any
) -> None:
    shop = catalog(named, "of_hive")
    shop.create_database(DATABASE)
    name = f"{DATABASE}.orders"
    shop.create_table(name, [("id", "BIGINT"), ("day", "STRING")])
    job.add_files(1)
    job.run(PaimonSink(name, catalog="of_hive"))
    assert shop.get_table(name).to_arrow().num_rows == 6

    toml = tmp_path / "catalogs.toml"
    toml.write_text(f'[catalog.prod]\nmetastore = "hive"\nuri = "{hive_metastore.uri}"\n')
    monkeypatch.setenv("PAIMON_STREAM_CONFIG", str(toml))
    for words, said in (
        (["ls", "--catalog", "prod"], "orders"),
        (["schema", "--catalog", "prod", name], "BIGINT"),
        (["alter", "--catalog", "prod", "--add", "note STRING", "--yes", name], ""),
        (["compact", "--catalog", "prod", name], ""),
    ):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, (words, done.output)
        assert said in done.output
    assert shop.get_table(name).schema.field_names == ("id", "day", "note")

    if not hasattr(named, "dataSource"):
        return  # pyspark 3.5 has no data sources in Python
    from paimon_stream import register, register_views

    register(named)
    rows = named.sql("SELECT id, 'mon' AS day, 'new' AS note FROM range(3)")
    rows.write.format("paimon_stream").mode("append").option("catalog", "of_hive").save(name)
    options = {"metastore": "hive", "uri": hive_metastore.uri}
    read = named.read.format("paimon_stream").options(**options).load(name)
    assert read.count() == 9
    register_views(named, "of_hive", databases=[DATABASE])
    assert named.sql(f"SELECT * FROM {name}").count() == 9
    named.sql(f"DROP DATABASE {DATABASE} CASCADE")
    assert shop.list_tables(DATABASE) == ["orders"]
