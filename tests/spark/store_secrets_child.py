"""Streams to a table on S3 with marked secrets in every place that a user may put them, and writes
down all that anybody could read.

python store_secrets_child.py <folder> <endpoint> <endpoint that fails>

The folder `said` has logs, reprs, errors, reports, plans and answers of commands; `events` has
Spark's event log; `checkpoint` is Spark's.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, PaimonTable
from paimon_stream.cli.app import cli
from paimon_stream.spark.active_session import open_beside_spark

SECRET, KEY_ID, TOKEN = "s3cr3t-never-shown", "AKIDTESTONLY", "t0ken-never-shown"
LOCATION = "s3a://bucket/wh/shop.db/secrets"


class Said:
    """A file of what was said."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def add(self, *things: object) -> None:
        for one in things:
            print(repr(one), str(one), f"{one}", file=self._file, flush=True)

    def add_error(self, error: BaseException | None) -> None:
        """The error, with everything that hangs on it."""
        while error is not None:
            self.add(error, error.args, vars(error), *traceback.format_exception(error))
            try:
                self.add(pickle.dumps(error))
            except (TypeError, AttributeError, pickle.PicklingError):
                self.add("not pickled")
            error = error.__cause__ or error.__context__

    def trying(self, function: Callable[[], Any]) -> None:
        """Calls the function, which must fail."""
        try:
            self.add(function())
        except BaseException as failed:  # noqa: BLE001
            self.add_error(failed)
        else:
            raise AssertionError("it did not fail")


def main(root: Path, endpoint: str, broken: str) -> None:
    said_folder, events = root / "said", root / "events"
    said_folder.mkdir()
    events.mkdir()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", events.as_uri())
        .getOrCreate()
    )
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    hadoop.set("fs.s3a.access.key", KEY_ID)
    hadoop.set("fs.s3a.secret.key", SECRET)
    hadoop.set("fs.s3a.session.token", TOKEN)
    hadoop.set("fs.s3a.endpoint", endpoint)
    hadoop.set("fs.azure.account.key.acc.dfs.core.windows.net", SECRET)
    os.environ.update(
        AWS_SECRET_ACCESS_KEY=SECRET, AWS_ACCESS_KEY_ID=KEY_ID, AWS_SESSION_TOKEN=TOKEN
    )
    logging.basicConfig(filename=said_folder / "log", level=logging.DEBUG)
    said = Said(said_folder / "said")
    own = {
        "s3.endpoint": endpoint,
        "s3.access-key": KEY_ID,
        "s3.secret-key": SECRET,
        "s3.session-token": TOKEN,
    }

    columns = [("id", "BIGINT NOT NULL"), ("day", "STRING")]
    table = PaimonTable.create(
        LOCATION,
        columns,
        primary_keys=["id"],
        options={"bucket": "2", "manifest.compression": "null"},
    )
    said.add(table, table.schema, table.options, open_beside_spark(LOCATION))
    for number in range(4):
        rows = spark.range(number * 6, number * 6 + 6).selectExpr("id", "'d1' day")
        rows.coalesce(1).write.mode("append").parquet(str(root / "in"))
    stream = spark.readStream.schema("id bigint, day string").option("maxFilesPerTrigger", 1)

    def run(sink: PaimonSink) -> None:
        query = sink.start(
            stream.parquet(str(root / "in")),
            checkpoint=str(root / "checkpoint"),
            trigger={"availableNow": True},
            query_name="orders",
        )
        query.awaitTermination()
        said.add(query.name, query.lastProgress, query.recentProgress, query.explain())
        said.add(sink, sink.last_report, sink.metrics(), vars(type(sink)))

    run(PaimonSink(LOCATION, options={"paimon-stream.small-batch": "off"}))
    run(PaimonSink(LOCATION, storage_options={**own, "paimon-stream.store.from-spark": "false"}))
    said.add(table.snapshots(), table.files(), table.verify(), table.to_arrow().to_pylist())
    spark.range(1).createOrReplaceTempView("v")
    said.add(*spark.sparkContext.getConf().getAll())

    down = {**own, "s3.endpoint": "http://127.0.0.1:1"}
    refused = {**own, "s3.endpoint": broken}
    for options in (down, refused, {**own, "s3.endpoint": f"http://u:{SECRET}@127.0.0.1:1"}):
        said.trying(lambda options=options: PaimonTable.load(LOCATION, storage_options=options))
        failing = PaimonTable.create if options is refused else PaimonTable.load
        said.trying(lambda f=failing, o=options: f(f"{LOCATION}2", storage_options=o, **_more(f)))
    for location in (
        f"s3://{KEY_ID}:{SECRET}@bucket/t",
        f"s3://bucket/t?X-Amz-Security-Token={TOKEN}",
    ):
        said.trying(lambda location=location: PaimonTable.load(location))
        said.trying(lambda location=location: PaimonSink(location))
        said.add(CliRunner().invoke(cli, ["snapshots", location, "--json", "--debug"]).output)
    said.trying(lambda: PaimonSink(LOCATION, storage_options={**own, "s3.secretkey": SECRET}))
    said.trying(lambda: PaimonSink(LOCATION, options={"s3.secret-key": SECRET}))
    said.trying(
        lambda: PaimonTable.create(f"{LOCATION}3", columns, options={"s3.secret-key": SECRET})
    )

    def fails(df: Any, batch_id: int) -> None:
        PaimonSink(LOCATION, storage_options=refused, commit_user="u")(df, batch_id)

    query = stream.parquet(str(root / "in")).writeStream.foreachBatch(fails)
    query = (
        query.option("checkpointLocation", str(root / "other")).trigger(availableNow=True).start()
    )
    said.trying(lambda: query.awaitTermination())
    said.add(query.exception())

    (root / "key").write_text(f"{SECRET}\n")
    given = [
        "--storage-option",
        f"s3.secret-key=@{root / 'key'}",
        "--storage-option",
        f"s3.access-key={KEY_ID}",
    ]
    given += ["--storage-option", f"s3.endpoint={endpoint}"]
    for command in ("snapshots", "files", "options", "schema", "verify", "doctor"):
        for more in ([], ["--json"]):
            answer = CliRunner().invoke(cli, [command, LOCATION, *given, *more])
            assert answer.exit_code in (0, 1), answer.output
            said.add(answer.output)
    answer = CliRunner().invoke(
        cli, ["doctor", LOCATION, *given, "--checkpoint", str(root / "checkpoint")]
    )
    assert "committed" in answer.output or "fresh" in answer.output, answer.output
    said.add(answer.output)
    for number, options in enumerate(
        ({"s3.endpoint": broken}, {"s3.endpoint": "http://127.0.0.1:1"})
    ):
        pairs = [f"--storage-option={name}={value}" for name, value in options.items()]
        answer = CliRunner().invoke(cli, ["snapshots", LOCATION, *pairs, "--debug"])
        assert answer.exit_code not in (0, None), number
        said.add(answer.output)
    (root / "key").unlink()
    spark.stop()
    print("done")


def _more(function: Any) -> dict[str, Any]:
    return {"schema": [("id", "INT")]} if function == PaimonTable.create else {}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
