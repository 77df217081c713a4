"""Sink options count only if a sink is given them. Another engine may store any option in a table's
schema, also while a stream runs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.commit.report import Phase
from paimon_stream.errors import HistoryUnknown, InvalidOption, TableRolledBack
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.options import JOURNAL, MERGE_SCHEMA, ON_TABLE_CHANGE, Option
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import load_table
from tests.kits.commits import Bench
from tests.kits.streams import PowerCut, Stream


class KilledInBatch3:
    """An observer that kills the run when batch 3 is in the table, and the checkpoint does not yet
    note it.
    """

    def reached(self, phase: Phase, identifier: int) -> None:
        if (phase, identifier) == (Phase.HINTED, 3):
            Stream.cut()


def stored(bench: Bench, option: Option[str] | Option[bool], value: str) -> None:
    """Another engine stores the option in the table's schema."""
    schemas = SchemaStore(bench.storage)
    schema = schemas.latest()
    options = MappingProxyType({**schema.options, option.key: value})
    assert schemas.create(replace(schema, id=schema.id + 1, options=options))


def others(bench: Bench, count: int) -> None:
    for number in range(count):
        bench.committer().commit(
            bench.request(number, [bench.message(f"other-{number}")], user="another")
        )


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "has options of a sink" in one.message]


def test_a_journal_that_is_switched_off_in_the_table_during_a_run_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.start(KilledInBatch3())
    stream.batches(2)
    stored(bench, JOURNAL, "false")
    stream.batch()
    (line,) = said(caplog)
    assert JOURNAL.key in line and "PaimonSink" in line and "RESET" in line
    with pytest.raises(PowerCut):
        stream.batch()
    others(bench, 2)
    bench.expire(4)
    stream.start()
    assert stream.batch().outcome == "already committed"
    assert len([name for name in bench.live_names() if name.startswith("me-3-")]) == 1


def test_a_decision_that_is_stored_in_the_table_lets_no_stream_pass_a_rollback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(3)
    stored(bench, ON_TABLE_CHANGE, "continue")
    rollback_to(bench.table, 1, runtime=bench.runtime)
    for _ in range(2):  # as a run that goes on, and after a restart
        with pytest.raises(TableRolledBack):
            stream.batch()
        stream.start()
    stream.options = {ON_TABLE_CHANGE.key: "continue"}
    stream.start()
    assert stream.batch().outcome == "committed"
    assert len(said(caplog)) == 2  # when it changed, and when the run began that got this far


@pytest.mark.parametrize("key", ["paimon-stream.merge-schema", "Paimon-Stream.MERGE-SCHEMA"])
def test_an_option_of_a_sink_in_a_table_is_not_in_force(key: str) -> None:
    bench = Bench()
    schemas = SchemaStore(bench.storage)
    options = MappingProxyType({key: "widen", "write.merge-schema": "true"})
    assert schemas.create(replace(schemas.latest(), id=1, options=options))
    assert load_table(bench.storage).options.value(MERGE_SCHEMA) == "widen"  # by Paimon's own name
    assert MERGE_SCHEMA.key not in load_table(bench.storage).options
    own = load_table(bench.storage, {MERGE_SCHEMA.key: "add"})
    assert own.options.value(MERGE_SCHEMA) == "add"


def test_a_writer_without_a_stream_is_given_its_options() -> None:
    location = "memory://stored-sink-options/db.db/t"
    bench = Bench(storage=open_storage(location))
    table = PaimonTable.load(location)
    writer = table.new_commit("me")
    message = bench.message("a")
    writer.commit(1, [message])
    others(bench, 2)
    bench.expire(1)
    with pytest.raises(HistoryUnknown, match="on-unknown-history"):
        table.new_commit("me").filter_and_commit({2: [bench.message("b")]})
    decided = {"paimon-stream.on-unknown-history": "continue"}
    assert table.new_commit("me", options=decided).filter_and_commit({2: [bench.message("c")]}) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"paimon-stream.journal": "false"}, "cannot be set for one call"),
        ({"paimon-stream.commit.guard": "maybe"}, "must be one of probe, strict, trust"),
    ],
)
def test_a_writer_without_a_stream_refuses_options_that_have_no_effect_on_it(
    options: dict[str, str], match: str
) -> None:
    table = PaimonTable.create(
        "memory://stored-sink-options/db.db/refusing", [("id", "BIGINT")], if_not_exists=True
    )
    with pytest.raises(InvalidOption, match=match):
        table.new_commit("me", options=options)


def test_a_table_says_when_a_writer_begins_which_options_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    stored(bench, JOURNAL, "false")
    Stream(bench).batches(2)
    assert len(said(caplog)) == 1
