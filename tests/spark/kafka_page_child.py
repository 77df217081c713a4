"""Runs the blocks of docs/kafka.md against a Kafka, in the current folder.

    python kafka_page_child.py HOST:PORT

The topic `events` has events in JSON, `avro` is empty. Prints one line of JSON: the columns that are
found in samples, what the audit prints, and the rows of Avro.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import SparkSession

from paimon_stream import PaimonTable
from tests.kits.code_blocks import Block, Page, blocks

ROOT = Path(__file__).parents[2]
AT = 1_795_600_000_000_000
"""Microseconds since 1970, on 2026-11-25."""


def printed(page: Page, block: Block, address: str) -> str:
    """What a block prints."""
    code = block.code.replace("localhost:9092", address)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        page.run(Block(**{**vars(block), "code": code}))
    return output.getvalue()


def framed(number: int, schema: str, event: dict[str, Any]) -> bytearray:
    """An event in Avro, behind the five bytes of a registry."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, json.loads(schema), event)
    return bytearray(b"\x00" + struct.pack(">i", number) + body.getvalue())


def stream(page: Page, spark: SparkSession, address: str, topic: str) -> None:
    """Streams what a topic has, by the page's job."""
    records = page.names["records_of"](spark, address, topic, 1000)
    folder = "warehouse/shop.db" if topic == "events" else topic
    query, _ = page.names["start"](records, folder, f"checkpoints/{topic}", None)
    query.awaitTermination()


def rows_of(location: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their offsets."""
    return PaimonTable.load(location).to_arrow().sort_by("offset").to_pylist()


def main() -> None:
    """Runs the blocks in the order of their use."""
    address = sys.argv[1]
    python = [block for block in blocks(ROOT / "docs" / "kafka.md") if block.language == "python"]
    job, audit, samples, avro = python
    page = Page({"__name__": "page"})
    columns = printed(page, samples, address)
    spark = page.names["spark"]
    page.run(job)
    stream(page, spark, address, "events")
    audited = printed(page, audit, address)
    page.run(avro)
    (first, old), (second, new) = page.names["SCHEMAS"].items()
    values = [
        framed(first, old, {"id": 1, "at": AT}),
        framed(second, new, {"id": 2, "at": AT, "user": "ann"}),
        framed(9, new, {"id": 3, "at": AT, "user": "bob"}),
        framed(second, new, {"id": 4, "at": AT, "user": "cy"})[:-2],
        None,
    ]
    frame = spark.createDataFrame([(value,) for value in values], "value BINARY").coalesce(1)
    options = {"kafka.bootstrap.servers": address, "topic": "avro"}
    frame.write.format("kafka").options(**options).save()
    stream(page, spark, address, "avro")
    events = [[row["id"], row["user"], str(row["at"])] for row in rows_of("avro/events")]
    others = [row["reason"] for row in rows_of("avro/events_rejected")]
    print(json.dumps({"columns": columns, "audit": audited, "avro": events, "others": others}))


if __name__ == "__main__":
    main()
