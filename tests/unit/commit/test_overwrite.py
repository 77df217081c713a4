"""What an overwrite removes, and what it refuses: each rule of semantics.md §5.1 by itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.commit.overwrite import is_dynamic, plan_drop, plan_overwrite
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.errors import IncompatibleSchema, InvalidOption, OutsidePartition
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.format.stats import partition_stats
from paimon_stream.format.types import parse_type
from paimon_stream.table.partition_spec import PartitionFilter, parse_partition
from tests.kits.commits import FIELDS, Bench, data_file

KIND = CommitKind.OVERWRITE


def filled(*partitions: str | None, **options: str) -> Bench:
    """A table with one file in each of these partitions, named after it, each of its own commit."""
    bench = Bench(partitioned=True, options=options)
    for number, dt in enumerate(partitions):
        bench.committer().commit(bench.request(number, [bench.message(f"in-{dt}", dt=dt)]))
    return bench


def changes(
    bench: Bench,
    messages: Sequence[CommitMessage] = (),
    partition: dict[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Changes:
    planned = plan_overwrite(
        bench.table, bench.manifests, messages, partition=partition, dynamic=dynamic
    )
    return planned.source.at(base(bench))


def base(bench: Bench) -> Base:
    latest = bench.snapshots.latest()
    return Base(
        snapshot=latest, metas=() if latest is None else bench.manifests.base_and_delta(latest)
    )


def named(found: Changes, kind: FileKind) -> list[str]:
    return [entry.file.file_name for entry in found.entries if entry.kind is kind]


def gone(found: Changes) -> list[str]:
    return named(found, FileKind.DELETE)


# -- which files go
# -----------------------------------------------------------------------------------


def test_a_dynamic_overwrite_takes_the_partitions_that_get_files() -> None:
    bench = filled("a", "b", "c")
    found = changes(bench, [bench.message("new", dt="b")])
    assert (gone(found), named(found, FileKind.ADD)) == (["in-b"], ["new"])
    assert [entry.kind for entry in found.entries] == [
        FileKind.DELETE,
        FileKind.ADD,
    ]  # as Java orders them
    assert found.record_count == 0


def test_a_static_overwrite_takes_the_named_partition_whether_it_gets_files_or_not() -> None:
    bench = filled("a", "b")
    assert gone(changes(bench, [bench.message("new", dt="a")], {"dt": "a"})) == ["in-a"]
    found = changes(bench, [], {"dt": "a"})
    assert (gone(found), found.record_count) == (["in-a"], -10)


def test_an_empty_spec_takes_the_whole_table_and_so_does_dynamic_off() -> None:
    bench = filled("a", "b", None)
    assert gone(changes(bench, [], {})) == ["in-a", "in-b", "in-None"]
    assert gone(changes(bench, [bench.message("new", dt="z")], dynamic=False)) == [
        "in-a",
        "in-b",
        "in-None",
    ]


def test_a_table_without_partitions_is_always_replaced_as_a_whole() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("old")]))
    for dynamic in (None, True, False):
        planned = plan_overwrite(bench.table, bench.manifests, [], dynamic=dynamic)
        assert planned.always
        assert gone(planned.source.at(base(bench))) == ["old"]


def test_the_name_of_the_default_partition_is_null_for_strings_too() -> None:
    bench = filled("a", None, "__DEFAULT_PARTITION__")
    assert gone(changes(bench, [], {"dt": "__DEFAULT_PARTITION__"})) == ["in-None"]
    assert gone(changes(bench, [], {"dt": None})) == ["in-None"]


def test_what_was_deleted_before_is_not_deleted_again() -> None:
    bench = filled("a", "b")
    planned = plan_overwrite(bench.table, bench.manifests, [], partition={"dt": "a"})
    first = bench.request(5, source=planned.source, kind=KIND, force_snapshot=True)
    bench.committer().commit(first)
    assert gone(changes(bench, [], {})) == ["in-b"]


def test_an_empty_table_has_nothing_to_take() -> None:
    bench = Bench(partitioned=True)
    assert changes(bench, [], {}) == Changes()


@pytest.mark.parametrize(("bucket", "taken"), [("-1", []), ("-2", ["waiting"])])
def test_files_without_a_real_bucket_stay_unless_the_table_is_postponed(
    bucket: str, taken: list[str]
) -> None:
    bench = Bench(partitioned=True, keys=("dt", "id"), options={"bucket": bucket})
    message = replace(bench.message("waiting", dt="a", bucket=0), bucket=-2)
    bench.committer().commit(bench.request(0, [message]))
    assert gone(changes(bench, [], {})) == taken


def test_deletions_are_those_of_the_base_at_hand_and_manifests_are_read_once() -> None:
    bench = filled("a")
    planned = plan_overwrite(bench.table, bench.manifests, [], partition={"dt": "a"})
    assert gone(planned.source.at(base(bench))) == ["in-a"]
    read: list[str] = []
    original = bench.manifests.read_of
    bench.manifests.read_of = lambda meta, of: read.append(meta.file_name) or original(meta, of)  # type: ignore
    bench.committer().commit(bench.request(9, [bench.message("later", dt="a")]))
    assert gone(planned.source.at(base(bench))) == ["in-a", "later"]
    assert len(read) == 1


def test_only_manifests_that_may_hold_the_partitions_are_read() -> None:
    bench = filled("a", "b", "c", **{"manifest.merge-min-count": "100"})
    read: list[ManifestFileMeta] = []
    original = bench.manifests.read_of
    bench.manifests.read_of = lambda meta, of: read.append(meta) or original(meta, of)  # type: ignore
    changes(bench, [bench.message("new", dt="b")])
    changes(bench, [], {"dt": "zz"})
    assert len(read) == 1


# -- modes
# ------------------------------------------------------------------------------------------------


def test_the_tables_option_decides_where_nothing_is_said() -> None:
    for value, expected in (("true", True), ("false", False)):
        bench = Bench(partitioned=True, options={"dynamic-partition-overwrite": value})
        assert is_dynamic(bench.table, None, None) is expected
    assert is_dynamic(Bench(partitioned=True).table, None, None)
    assert not is_dynamic(Bench(partitioned=True).table, {"dt": "a"}, None)
    assert not is_dynamic(Bench().table, None, None)


def test_a_named_partition_and_dynamic_contradict_each_other() -> None:
    bench = Bench(partitioned=True)
    with pytest.raises(InvalidOption, match="dynamic=True"):
        changes(bench, [], {"dt": "a"}, dynamic=True)
    with pytest.raises(InvalidOption):
        changes(bench, [], {}, dynamic=True)


def test_only_a_dynamic_overwrite_may_make_no_snapshot() -> None:
    bench = filled("a")
    assert not plan_overwrite(bench.table, bench.manifests, []).always
    assert plan_overwrite(bench.table, bench.manifests, [], partition={}).always
    assert changes(bench, []) == Changes()


# -- what is refused and what is left out
# -----------------------------------------------------------------


def test_files_outside_of_the_named_partition_are_refused_by_name() -> None:
    bench = filled("a", "b")
    messages = [
        bench.message("ok", dt="a"),
        bench.message("lost", dt="b"),
        bench.message("null", dt=None),
    ]
    with pytest.raises(
        OutsidePartition, match="lie outside of it, in dt=__DEFAULT_PARTITION__, dt=b"
    ) as caught:
        changes(bench, messages, {"dt": "a"})
    assert caught.value.context["count"] == 2


def test_a_partition_the_table_cannot_have_is_refused() -> None:
    with pytest.raises(IncompatibleSchema, match="partition columns are: dt"):
        changes(Bench(partitioned=True), [], {"day": "a"})
    with pytest.raises(IncompatibleSchema, match="not partitioned"):
        changes(Bench(), [], {"dt": "a"})
    with pytest.raises(InvalidOption, match="partition is of type str"):
        changes(Bench(partitioned=True), [], "dt=a")  # type: ignore[arg-type]


def test_changelog_files_are_left_out_with_a_warning_that_names_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = filled("a")
    message = replace(
        bench.message("new", dt="a"),
        changelog_files=(data_file("changelog-1"),),
        compact_changelog_files=(data_file("changelog-2"),),
    )
    with caplog.at_level(logging.WARNING):
        planned = plan_overwrite(bench.table, bench.manifests, [message])
    assert "changelog-1, changelog-2" in caplog.text
    assert planned.source.at(base(bench)).changelog == ()
    assert planned.messages == (replace(message, changelog_files=(), compact_changelog_files=()),)


def test_files_that_a_message_deletes_are_deleted_once() -> None:
    bench = filled("a")
    message = replace(bench.message("new", dt="a"), deleted_files=(data_file("in-a"),))
    assert gone(changes(bench, [message])) == ["in-a"]


# -- dropping partitions
# ----------------------------------------------------------------------------------


def test_dropping_takes_all_partitions_that_one_of_the_specs_fits() -> None:
    bench = filled("a", "b", "c")
    found = plan_drop(bench.table, bench.manifests, [{"dt": "c"}, {"dt": "a"}]).source.at(
        base(bench)
    )
    assert (gone(found), named(found, FileKind.ADD)) == (["in-a", "in-c"], [])


@pytest.mark.parametrize("given", [[], [{}], [{"dt": "a"}, {}], {"dt": "a"}, "dt=a"])
def test_dropping_needs_partitions_to_drop(given: Any) -> None:
    bench = filled("a")
    with pytest.raises(InvalidOption, match="Give a list of partitions"):
        plan_drop(bench.table, bench.manifests, given)


# -- sequence numbers
# -------------------------------------------------------------------------------------


def test_what_several_tasks_wrote_to_one_bucket_is_numbered_from_zero() -> None:
    bench = Bench(partitioned=True, options={"bucket": "2", "bucket-key": "id"})
    for number in range(2):
        bench.committer().commit(
            bench.request(number, [bench.message(f"o{number}", dt="a")], renumber=True)
        )
    messages = [bench.message(f"n{i}", dt="a", bucket=i % 2) for i in range(4)]
    found = [e.file for e in changes(bench, messages).entries if e.kind is FileKind.ADD]
    spans = [(f.file_name, f.min_sequence_number, f.max_sequence_number) for f in found]
    assert spans == [("n0", 0, 9), ("n1", 0, 9), ("n2", 10, 19), ("n3", 10, 19)]


# -- levels
# -----------------------------------------------------------------------------------------------


def keyed(
    bench: Bench, name: str, low: int, high: int, *, level: int = 0, bucket: int = 0
) -> CommitMessage:
    """A message of a file with keys from `low` to `high`."""
    low_key, high_key = (serialize([FIELDS[0].type], [key]) for key in (low, high))
    message = bench.message(name, bucket=bucket)
    file = replace(message.new_files[0], min_key=low_key, max_key=high_key, level=level)
    return replace(message, new_files=(file,))


def levels(found: Changes) -> list[tuple[str, int]]:
    return [(e.file.file_name, e.file.level) for e in found.entries if e.kind is FileKind.ADD]


def test_a_bucket_whose_files_share_no_key_comes_to_the_top_level_in_the_order_of_keys() -> None:
    bench = Bench(options={"bucket": "2"}, keys=("id",))
    apart = [keyed(bench, "late", 300, 400), keyed(bench, "early", 1, 2)]
    touching = [keyed(bench, "x", 1, 5, bucket=1), keyed(bench, "y", 5, 9, bucket=1)]
    expected = [("early", 5), ("late", 5), ("x", 0), ("y", 0)]
    assert levels(changes(bench, [*apart, *touching], {})) == expected
    assert levels(changes(bench, [*apart, *touching])) == expected


def test_files_keep_their_level_where_one_has_one_or_a_compaction_follows() -> None:
    bench = Bench(options={"bucket": "2"}, keys=("id",))
    placed, plain = keyed(bench, "placed", 1, 2, level=3), keyed(bench, "plain", 3, 4)
    assert levels(changes(bench, [placed, plain], {})) == [("placed", 3), ("plain", 0)]
    compacted = replace(plain, compact_before=plain.new_files, compact_after=placed.new_files)
    assert levels(changes(bench, [compacted], {})) == [("plain", 0)]


def test_the_table_says_how_many_levels_there_are_and_whether_they_are_used() -> None:
    for option, top in (("num-levels=3", 2), ("num-levels=1", 0), ("overwrite-upgrade=false", 0)):
        name, _, value = option.partition("=")
        bench = Bench(options={"bucket": "1", name: value}, keys=("id",))
        assert levels(changes(bench, [keyed(bench, "a", 1, 2)], {})) == [("a", top)]


# -- choosing partitions
# ----------------------------------------------------------------------------------


TYPES = [parse_type("STRING"), parse_type("INT")]


def row(dt: str | None, hour: int | None) -> bytes:
    return serialize(TYPES, [dt, hour])


def chosen(*specs: dict[str, Any]) -> PartitionFilter:
    fields = [
        replace(FIELDS[0], name="dt", type=TYPES[0]),
        replace(FIELDS[1], name="hour", type=TYPES[1]),
    ]
    return PartitionFilter(
        TYPES, specs=[parse_partition(fields, spec, "null", table="/w/t") for spec in specs]
    )


def test_a_partial_spec_fits_all_partitions_with_its_values() -> None:
    one = chosen({"hour": 7})
    assert one.holds(row("a", 7))
    assert one.holds(row(None, 7))
    assert not one.holds(row("a", 8))
    both = chosen({"hour": 7}, {"dt": "a"})
    assert both.holds(row("a", 8))
    assert not both.holds(row("b", 8))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"dt": "b"}, True),
        ({"dt": "d"}, False),
        ({"hour": 5}, True),
        ({"hour": 9}, False),
        ({"hour": None}, False),
        ({"dt": None}, True),
        ({"dt": "b", "hour": 9}, False),
        ({"dt": "b", "hour": 5}, True),
    ],
)
def test_statistics_leave_out_manifests_that_cannot_have_a_spec(
    spec: dict[str, Any], expected: bool
) -> None:
    stats = partition_stats(TYPES, [row("a", 3), row("c", 7), row(None, 7)])
    assert chosen(spec).may_be_in(stats) is expected


def test_blocks_without_a_chosen_row_are_not_looked_into() -> None:
    one = PartitionFilter(TYPES, rows=[row("a", 1)])
    assert one.may_be_in_block(b"..." + row("a", 1) + b"...")
    assert not one.may_be_in_block(row("a", 2))
    assert chosen({"hour": 1}).may_be_in_block(b"")
    assert not PartitionFilter(TYPES, rows=[]).may_be_in_block(row("a", 1))
    assert PartitionFilter([], rows=[]).is_everything
