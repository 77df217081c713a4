"""What a `PaimonSink` with a merge accepts: all that is wrong for every table is refused at once."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark")

from paimon_stream import Merge, PaimonSink
from paimon_stream.errors import InvalidOption, PaimonStreamError, UnsupportedFeature

MERGE = Merge(on=["id"]).when_matched_update_all().when_not_matched_insert_all()
LOCATION = "memory://merging-sinks/db.db/t"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("paimon-stream.operation-column", "op"),
        ("paimon-stream.operation-mapping", "c=+I"),
        ("paimon-stream.merge-schema", "add"),
        ("write.merge-schema", "true"),
        ("paimon-stream.missing-columns", "null"),
        ("paimon-stream.shuffle", "bucket"),
        ("paimon-stream.small-batch", "off"),
        ("paimon-stream.journal.reuse", "false"),
        ("paimon-stream.on-sequence-conflict", "fail"),
    ],
)
def test_options_that_a_merge_would_ignore_are_refused_by_name(option: str, value: str) -> None:
    named = option if option.startswith("paimon-stream.") else "paimon-stream.merge-schema"
    with pytest.raises(UnsupportedFeature, match=f"{LOCATION}.*{named} does not go with merge: "):
        PaimonSink(LOCATION, merge=MERGE, options={option: value})
    PaimonSink(LOCATION, merge=MERGE, options={"paimon-stream.compact": "off"})


@pytest.mark.parametrize("merge", [7, "id", {"on": ["id"]}, object(), Merge])
def test_a_merge_is_a_merge(merge: Any) -> None:
    with pytest.raises(InvalidOption, match=r"merge is .*Give a paimon_stream\.Merge"):
        PaimonSink(LOCATION, merge=merge)


def test_a_merge_replaces_no_table() -> None:
    with pytest.raises(UnsupportedFeature, match="mode='complete' replaces the whole table"):
        PaimonSink(LOCATION, merge=MERGE, mode="complete")
    for mode in ("append", "update"):
        PaimonSink(LOCATION, merge=MERGE, mode=mode)


@pytest.mark.parametrize(
    "merge", [Merge(on=["id"]), MERGE.when_not_matched_by_source_delete()], ids=["none", "rest"]
)
def test_clauses_that_no_stream_can_have_are_refused(merge: Merge) -> None:
    with pytest.raises(PaimonStreamError, match=LOCATION):
        PaimonSink(LOCATION, merge=merge)


def test_a_sink_with_a_merge_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(PaimonSink(LOCATION, merge=MERGE)))
    assert again._settings.merge == MERGE
