"""Tables whose rows or changelog only a compaction shows: nobody writes them where none follows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.writable import check_writable, warn_of_merging
from paimon_stream.table.table import Table, load_table

OFF = {"paimon-stream.compact": "off"}
NEEDS = [
    ({"deletion-vectors.enabled": "true"}, "invisible"),
    ({"merge-engine": "first-row"}, "invisible"),
    ({"changelog-producer": "lookup"}, "only a compaction writes its changelog"),
    ({"changelog-producer": "full-compaction"}, "only a compaction writes its changelog"),
]


def table(root: Path, options: dict[str, str], given: dict[str, str]) -> Table:
    columns = [("id", "BIGINT NOT NULL"), ("v", "STRING")]
    path = str(root / "t")
    PaimonTable.create(path, columns, primary_keys=["id"], options={"bucket": "1", **options})
    return load_table(LocalStorage(path), given)


@pytest.mark.parametrize(("options", "why"), NEEDS)
def test_a_stream_writes_them_where_it_compacts(
    tmp_path: Path, options: dict[str, str], why: str
) -> None:
    check_writable(table(tmp_path, options, {}), in_stream=True)
    for in_stream, given in ((True, OFF), (False, {})):
        with pytest.raises(UnsupportedFeature, match=why) as refused:
            check_writable(
                load_table(LocalStorage(str(tmp_path / "t")), given), in_stream=in_stream
            )
        assert ("Set paimon-stream.compact to auto" in str(refused.value)) is in_stream


@pytest.mark.parametrize(("options", "why"), NEEDS)
def test_where_another_job_compacts_them_all_write_them_and_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], why: str
) -> None:
    left = table(tmp_path, {**options, "write-only": "true"}, OFF)
    check_writable(left, in_stream=True)
    check_writable(left)
    with caplog.at_level(logging.WARNING, "paimon_stream"):
        for _ in range(3):  # as a program does that appends in a loop
            warn_of_merging(left, in_stream=True)
    (said,) = caplog.messages
    assert why in said and f"{' = '.join(*options.items())}:" in said
