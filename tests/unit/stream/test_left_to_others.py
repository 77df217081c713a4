"""A warning names, once when a writer begins, the options that ask for work which this package does
not do.
"""

from __future__ import annotations

import json
import logging
from itertools import count

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
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
}
OFF = {
    "metadata.iceberg.storage": "disabled",
    "write.merge-schema.explicit-cast": "false",
    "tag.create-success-file": "false",
}
OF_OTHER_JOBS = {"tag.callbacks", "tag.create-success-file"}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "does not act upon" in one.getMessage()]


def made(options: dict[str, str]) -> PaimonTable:
    location = f"memory://left-to-others-{next(NUMBERS)}/db.db/t"
    columns = [("id", "BIGINT"), ("dt", "STRING")]
    return PaimonTable.create(location, schema=columns, partition_keys=["dt"], options=options)


@pytest.mark.parametrize("option", LEFT)
def test_a_batch_write_says_which_option_it_does_not_act_upon(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"id": [1], "dt": ["a"]})
    made({option: LEFT[option]}).append(rows)
    (line,) = said(caplog)
    assert f"{option} = {LEFT[option]} (" in line
    made({option: LEFT[option]}).overwrite(rows)
    made({option: LEFT[option]}).new_commit("me")
    assert len(said(caplog)) == 3
    made({option: LEFT[option], "write-only": "true"}).append(rows)
    assert len(said(caplog)) == 3 + (option not in OF_OTHER_JOBS)


def test_what_is_switched_off_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    made(OFF).append(pa.table({"id": [1], "dt": ["a"]}))
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
    PaimonTable.load(table.location).append(pa.table({"id": [1], "dt": ["a"]}))
    assert "fs.s3a.secret.key" in caplog.text
    assert "hunter2" not in caplog.text
