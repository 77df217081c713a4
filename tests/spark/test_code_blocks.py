"""Each code block of the documentation runs, or says why it does not."""

from __future__ import annotations

import gzip
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.kits.code_blocks import Block, Page, blocks, commands, enter

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "tests" / "vectors" / "debezium" / "plain.jsonl.gz"
PAGES = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
BLOCKS = {name: list(blocks(path)) for name, path in PAGES.items()}
RUN = {name: [one for one in found if one.not_run is None] for name, found in BLOCKS.items()}
REASONS = {
    "`orders` is any stream of yours; the quick start runs these lines",
    "installs packages",
    "takes minutes",
    "needs a cloud store",
    "needs HDFS",
    "needs Kafka",
    "needs a cluster manager",
    "needs Paimon's jar",
    "needs Flink",
    "needs a Hive Metastore",
    "needs Airflow",
    "needs Delta",
}

SLOW = {"quickstart.md", "reading.md", "spark-format.md", "spark-sql.md"}
"""`make test-long` runs these."""

Given = Callable[[Any], dict[str, Any]]


def events(spark: Any) -> dict[str, Any]:
    """operations.md: a table with a snapshot of a stream, and one from which rows can be
    deleted.
    """
    location = "warehouse/shop.db/orders"
    PaimonTable.create(location, schema=[("id", "INT")]).new_commit("etl").commit(0, [])
    columns = [("customer", "BIGINT"), ("dt", "STRING")]
    PaimonTable.create(
        "warehouse/shop.db/events", schema=columns, options={"deletion-vectors.enabled": "true"}
    )
    return {"location": location}


def orders(spark: Any) -> dict[str, Any]:
    """compaction.md: a table with partitions."""
    PaimonTable.create(
        "warehouse/shop.db/orders", schema=[("id", "INT"), ("dt", "STRING")], partition_keys=["dt"]
    )
    return {"PaimonTable": PaimonTable}


def envelopes(spark: Any) -> dict[str, Any]:
    """primary-keys.md: Debezium's changes, of which one deletes a row, with a tombstone."""
    row = "struct<id: bigint, status: string, changed: timestamp_ntz>"
    at = "2026-11-20T10:00:00"
    Path("changes").mkdir()
    Path("changes/1.json").write_text(
        f'{{"op": "c", "after": {{"id": 1, "status": "new", "changed": "{at}"}}}}\n'
        f'{{"op": "c", "after": {{"id": 2, "status": "new", "changed": "{at}"}}}}\n'
        f'{{"op": "d", "before": {{"id": 1, "status": "new", "changed": "{at}"}}}}\n{{}}\n'
    )
    return {
        "envelopes": spark.readStream.schema(f"op string, before {row}, after {row}").json(
            "changes"
        )
    }


def records(spark: Any) -> dict[str, Any]:
    """cdc.md: the records of a topic, of which the last two delete the row."""
    Path("topic").mkdir()
    lines = [
        line
        for line in gzip.decompress(EVENTS.read_bytes()).decode().splitlines()
        if json.loads(line)["topic"] == "shop.public.full_orders"
    ]
    Path("topic/1.json").write_text("\n".join(lines) + "\n")
    columns = "key string, value string, topic string, partition int, offset bigint"
    read = spark.readStream.schema(columns).json("topic")
    return {
        "records": read.selectExpr(
            "binary(key) key", "binary(value) value", "topic", "partition", "offset"
        )
    }


def sources(_: Any) -> dict[str, Any]:
    """spark-format.md, spark-sql.md: Spark 3.5 has no data sources in Python."""
    pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")
    return {}


def nothing(_: Any) -> dict[str, Any]:
    """Any other page."""
    return {}


GIVEN: dict[str, Given] = {
    "operations.md": events,
    "compaction.md": orders,
    "primary-keys.md": envelopes,
    "cdc.md": records,
    "spark-format.md": sources,
    "spark-sql.md": sources,
}
"""What these pages take for granted: their reader has a table, or a stream."""


@pytest.fixture
def folder(spark_session: Any, tmp_path: Path) -> Iterator[Path]:
    """A fresh current folder, also for Spark. Afterwards everything is as it was."""
    spark_session.sparkContext.setLogLevel("OFF")
    before, level = Path.cwd(), logging.getLogger("paimon_stream").level
    enter(tmp_path, spark_session)
    yield tmp_path
    enter(before, spark_session)
    logging.getLogger("paimon_stream").setLevel(level)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in SLOW else ())
        for name, page in RUN.items()
        if page
    ],
)
def test_the_blocks_of_a_page_run(name: str, folder: Path, spark_session: Any) -> None:
    page = Page({"__name__": "__main__", **GIVEN.get(name, nothing)(spark_session)})
    for block in RUN[name]:
        page.run(block)


def test_a_block_that_is_not_run_has_a_known_reason() -> None:
    given = {one.not_run for found in BLOCKS.values() for one in found if one.not_run}
    assert given <= REASONS, "a new reason belongs into REASONS, after a second thought"


def test_every_mark_stands_directly_above_a_block() -> None:
    for name, path in PAGES.items():
        text = path.read_text()
        written = re.findall(r"^<!-- not run:", text, re.MULTILINE)
        assert len(written) == sum(one.not_run is not None for one in BLOCKS[name]), name


def test_the_reader_of_blocks_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# T\n\n```python\na = 1\n```\n\n<!-- not run: it is dear -->\n```bash\npay\n```\n\n```\nno\n```\n"
    )
    assert list(blocks(path)) == [
        Block(page="page.md", line=3, language="python", code="a = 1\n", not_run=None),
        Block(page="page.md", line=8, language="bash", code="pay\n", not_run="it is dear"),
    ]


def test_a_block_that_fails_names_its_page_and_line() -> None:
    wrong = Block(page="page.md", line=7, language="python", code="1 / 0\n", not_run=None)
    with pytest.raises(AssertionError, match=r"page\.md, block at line 7: ZeroDivisionError"):
        Page().run(wrong)
    foreign = Block(page="page.md", line=7, language="bash", code="rm -r /\n", not_run=None)
    with pytest.raises(AssertionError, match="only paimon-stream can be run here, not rm"):
        Page().run(foreign)


def test_commands_may_have_comments_and_go_over_lines() -> None:
    assert list(commands("# first\na b \\\n  'c d'  # more\n\ne\n")) == [["a", "b", "c d"], ["e"]]
