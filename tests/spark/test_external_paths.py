"""Streams into tables whose data files lie in external paths: tasks, the driver and compactions
write there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kits.params import few
from tests.kits.spark_jobs import Job
from tests.spark.test_keyed_sink import changes, merged

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))


@pytest.mark.parametrize("bucket", few(["2", "-1", "-2"], lambda bucket: bucket == "2"))
def test_all_ways_of_a_stream_write_to_the_external_paths(
    job: Job, kinds: Any, bucket: str
) -> None:
    """Tasks write the first batch, the driver the others."""
    outside = Path(job.root) / "outside"
    paths = {"data-file.external-paths": f"file://{outside}/one,file://{outside}/two"}
    strategy = {"data-file.external-paths.strategy": "entropy-inject"}
    job.create(COLUMNS, primary_keys=["id"], options={"bucket": bucket, **paths, **strategy})
    changes(job, *((one, "first") for one in range(10)), operations="c" * 10)
    changes(job, (1, "second"), (2, "second"), (1, "third"), (3, ""), operations="uucd")
    changes(job, (4, "fourth"), operations="u")
    job.run(
        job.sink(options={"paimon-stream.operation-column": "op", "paimon-stream.compact": "off"})
    )
    table = job.load()
    assert table.compact(full=True, options={"postpone.default-bucket-num": "3"}).buckets
    expected = dict.fromkeys(range(10), "first") | {1: "third", 2: "second", 4: "fourth"}
    del expected[3]
    assert sorted(merged(job, kinds)) == sorted(expected.items())
    stored = {f"file:{one}" for one in outside.rglob("*") if one.is_file()}
    assert stored >= {file.path for file in table.files()}
    assert not list(Path(job.table).rglob("data-*"))
    assert not [one for one in table.verify(sample=20).findings if one.severity != "info"]
