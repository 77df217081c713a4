"""A warning names, once when a writer begins, the options that ask for work which this package does
not do.
"""

from __future__ import annotations

import json
import logging
import re
from itertools import count

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.commits import Bench
from tests.kits.steps import run_batch

NUMBERS = count()
LEFT = {
    "commit.callbacks": "org.example.Callback",
    "metadata.iceberg.storage": "table-location",
    "write.merge-schema.explicit-cast": "true",
    "partition.timestamp-format.strict": "true",
    "tag.callbacks": "org.example.Callback",
    "tag.create-success-file": "true",
    "manifest-sort.enabled": "true",
    "postpone.merge-on-read": "true",
    "target-file-row-num": "1000",
    "visibility-callback.enabled": "true",
}
OFF = {
    "metadata.iceberg.storage": "disabled",
    "write.merge-schema.explicit-cast": "false",
    "tag.create-success-file": "false",
}
ROWS = {"id": [1], "dt": ["a"], "m": pa.array([None], pa.map_(pa.string(), pa.int32()))}
OF_OTHER_JOBS = {"tag.callbacks", "tag.create-success-file"}


NOT_WRITTEN = {
    "blob-descriptor-field": "dt",
    "blob-field": "dt",
    "blob-view-field": "dt",
    "fields.m.map.storage-layout": "shared-shredding",
    "primary-key.nullable": "true",
    "vector-field": "dt",
    "video-frame-field": "dt",
}
NOT_READ = {
    "fields.m.map.storage-layout": "shared-shredding",
    "primary-key.nullable": "true",
    "query-auth.enabled": "true",
}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "does not act on" in one.getMessage()]


def made(options: dict[str, str]) -> PaimonTable:
    location = f"memory://left-to-others-{next(NUMBERS)}/db.db/t"
    columns = [("id", "BIGINT"), ("dt", "STRING"), ("m", "MAP<STRING NOT NULL, INT>")]
    return PaimonTable.create(location, schema=columns, partition_keys=["dt"], options=options)


@pytest.mark.parametrize("option", LEFT)
def test_a_batch_write_says_which_option_it_does_not_act_upon(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table(ROWS)
    made({option: LEFT[option]}).append(rows)
    (line,) = said(caplog)
    assert f"{option} = {LEFT[option]} (" in line
    made({option: LEFT[option]}).overwrite(rows)
    made({option: LEFT[option]}).new_commit("me")
    assert len(said(caplog)) == 3
    made({option: LEFT[option], "write-only": "true"}).append(rows)
    assert len(said(caplog)) == 3 + (option not in OF_OTHER_JOBS)


@pytest.mark.filterwarnings("ignore:The table was created")
@pytest.mark.parametrize("option", NOT_WRITTEN)
def test_a_table_whose_files_would_be_wrong_is_not_written(option: str) -> None:
    table = made({option: NOT_WRITTEN[option]})
    with pytest.raises(UnsupportedFeature, match=re.escape(option)):
        table.append(pa.table(ROWS))


@pytest.mark.filterwarnings("ignore:The table was created")
@pytest.mark.parametrize("option", NOT_READ)
def test_a_table_whose_rows_would_be_wrong_is_not_read(option: str) -> None:
    with pytest.raises(UnsupportedFeature, match=re.escape(option)):
        made({option: NOT_READ[option]}).to_arrow()


def test_the_plain_layout_of_a_map_is_read_and_written() -> None:
    table = made({"fields.m.map.storage-layout": "default"})
    table.append(pa.table(ROWS))
    assert table.to_arrow().num_rows == 1


def test_what_is_switched_off_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    made(OFF).append(pa.table(ROWS))
    assert said(caplog) == []


def test_a_stream_says_it_once_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(partitioned=True, options=LEFT)
    caplog.set_level(logging.WARNING)
    writer = StreamWriter(
        storage=bench.storage,
        identity=WriterIdentity(user="me", query_id="q", run_id="r", token="t"),
        options={},
        runtime=bench.runtime,
    )
    for number in range(2):
        batch = Batch(batch_id=number)
        message = bench.message(f"f{number}", dt="a")
        run_batch(writer, batch, lambda judged, message=message: (message,))  # type: ignore[misc]
    (line,) = said(caplog)
    assert all(option in line for option in LEFT)


def test_credentials_that_somebody_stored_in_a_table_are_named_without_their_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = made({})
    storage = table._storage
    schema = json.loads(storage.read("schema/schema-0"))
    schema["options"]["fs.s3a.secret.key"] = "hunter2"
    storage.write("schema/schema-0", json.dumps(schema).encode())
    PaimonTable.load(table.location).append(pa.table(ROWS))
    assert "fs.s3a.secret.key" in caplog.text
    assert "hunter2" not in caplog.text
