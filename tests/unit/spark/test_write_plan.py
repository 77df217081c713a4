"""How the next batch is written, by the sizes, files and rows of the batches before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.spark.write_plan import ArrowBatches, Share, Way, WritePlan, Written
from paimon_stream.table.table import Table, load_table
from tests.kits.commits import Bench, data_file

KB, MB = 2**10, 2**20
BUCKETS: Mapping[str, str] = {"bucket": "2", "bucket-key": "id"}


def table_of(options: Mapping[str, str] = BUCKETS, **arguments: object) -> Table:
    return Bench(options=options, **arguments).table  # type: ignore[arg-type]


APPEND, GROUPED, KEYED = table_of({}), table_of(), table_of(keys=["id"])


def batch(
    *, tasks: int, buckets: int = 2, size: int = 100 * KB, files: int = 1
) -> list[CommitMessage]:
    """Messages of this number of tasks, each with one file of these bytes for each bucket."""
    return [
        CommitMessage(
            partition=b"",
            bucket=bucket,
            total_buckets=buckets,
            new_files=tuple(
                replace(data_file(f"{task}-{bucket}-{number}", 10), file_size=size)
                for number in range(files)
            ),
        )
        for task in range(tasks)
        for bucket in range(buckets)
    ]


def learnt(table: Table, *batches: list[CommitMessage], row_bytes: int | None = 100) -> WritePlan:
    plan = WritePlan()
    for messages in batches:
        plan.learn(
            plan.way_of_tasks(table), Written(messages=tuple(messages), row_bytes=row_bytes), table
        )
    return plan


def gathers(*batches: list[CommitMessage]) -> bool:
    return learnt(GROUPED, *batches).way_of_tasks(GROUPED) is Way.PACKETS


# -- many small files
# ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "expected"), [(1, False), (3, False), (4, True), (200, True)])
def test_many_small_files_are_brought_together(tasks: int, expected: bool) -> None:
    assert gathers(batch(tasks=tasks)) is expected


def test_large_files_are_left_where_they_are_and_no_task_gets_too_much() -> None:
    assert gathers(batch(tasks=8, size=4 * MB - 1))
    assert not gathers(batch(tasks=8, size=4 * MB))
    assert gathers(batch(tasks=200, size=320 * KB))
    assert not gathers(batch(tasks=200, size=340 * KB))


def test_gathering_goes_on_until_the_rows_are_many() -> None:
    many, gathered = batch(tasks=8), batch(tasks=1, size=8 * 100 * KB)
    assert gathers(many, gathered, gathered)
    assert not gathers(many, gathered, batch(tasks=1, size=33 * MB))
    assert not gathers(many, gathered, batch(tasks=1, size=33 * MB), batch(tasks=8, size=5 * MB))


def test_a_batch_without_files_changes_nothing() -> None:
    assert gathers(batch(tasks=8), [])
    assert not gathers([])


def test_rows_are_gathered_only_where_they_have_somewhere_to_go_and_the_option_allows_it() -> None:
    many = batch(tasks=200)
    assert learnt(APPEND, many).way_of_tasks(APPEND) is Way.TASKS
    for choice, expected in (("none", Way.TASKS), ("bucket", Way.PACKETS)):
        table = load_table(GROUPED.storage, {"paimon-stream.shuffle": choice})
        assert learnt(table, many).way_of_tasks(table) is expected
        assert WritePlan().way_of_tasks(table) is expected


# -- tables with a primary key
# ------------------------------------------------------------------------


def test_rows_with_keys_are_packed_until_a_bucket_had_several_files_and_again_when_they_are_few() -> (
    None
):
    fits, too_large = batch(tasks=1), batch(tasks=1, files=2, size=MB)
    assert learnt(KEYED, fits).way_of_tasks(KEYED) is Way.PACKETS
    assert learnt(KEYED, too_large).way_of_tasks(KEYED) is Way.SPARK_SORT
    half = batch(tasks=1, size=MB)
    assert learnt(KEYED, too_large, half).way_of_tasks(KEYED) is Way.SPARK_SORT
    less = batch(tasks=1, size=MB - 1)
    assert learnt(KEYED, too_large, less).way_of_tasks(KEYED) is Way.PACKETS


NOT_COMPACTED = table_of({**BUCKETS, "write-only": "true"}, keys=["id"])


def test_rows_with_keys_stay_in_their_tasks_if_these_are_few_and_their_files_not_small() -> None:
    table, large = NOT_COMPACTED, batch(tasks=1, size=4 * MB)
    plan = learnt(table, large)
    ways = {tasks: plan.way_of_tasks(table, tasks) for tasks in (1, 4, 5, None)}
    assert ways == {1: Way.TASKS, 4: Way.TASKS, 5: Way.PACKETS, None: Way.PACKETS}
    plan.learn(
        Way.TASKS, Written(messages=tuple(batch(tasks=4, size=MB - 1)), row_bytes=100), table
    )
    assert (plan.way_of_tasks(table, 3), plan.way_of_tasks(table, 4)) == (Way.TASKS, Way.PACKETS)
    assert learnt(table, batch(tasks=1, size=4 * MB - 1)).way_of_tasks(table, 4) is Way.PACKETS
    assert WritePlan().way_of_tasks(table, 1) is Way.PACKETS  # nothing is known of its size
    off = load_table(KEYED.storage, {"paimon-stream.compact": "off"})
    assert learnt(off, large).way_of_tasks(off, 1) is Way.TASKS


def test_rows_with_keys_move_if_the_option_or_their_buckets_ask_for_it_and_if_the_stream_compacts() -> (
    None
):
    large = batch(tasks=1, size=4 * MB)
    asks = load_table(NOT_COMPACTED.storage, {"paimon-stream.shuffle": "bucket"})
    dynamic = table_of({"bucket": "-1", "write-only": "true"}, keys=["id"])
    for table in (KEYED, asks, dynamic):
        assert learnt(table, large).way_of_tasks(table, 1) is Way.PACKETS
    whole = WritePlan(streaming=False)
    whole.learn(Way.SPARK_SORT, Written(messages=tuple(large)), NOT_COMPACTED)
    assert whole.way_of_tasks(NOT_COMPACTED, 1) is Way.SPARK_SORT


def test_a_batch_write_with_keys_is_sorted_by_spark_for_it_may_be_of_any_size() -> None:
    assert WritePlan(streaming=False).way_of_tasks(KEYED) is Way.SPARK_SORT
    assert WritePlan(streaming=False).way_of_tasks(APPEND) is Way.TASKS


# -- the driver
# ---------------------------------------------------------------------------------------


def after(rows: int, table: Table, *, size: int = MB, row_bytes: int = 100) -> WritePlan:
    """After one batch of this number of rows, in one file of these bytes."""
    plan = WritePlan()
    file = replace(data_file("one", rows), file_size=size)
    message = CommitMessage(partition=b"", bucket=0, total_buckets=1, new_files=(file,))
    plan.learn(Way.TASKS, Written(messages=(message,), row_bytes=row_bytes), table)
    return plan


def rows_of(share: Share | None) -> int | None:
    return None if share is None else share.rows


def test_tasks_write_the_first_batch_and_all_until_eight_small_ones_came_in_a_row() -> None:
    plan = WritePlan()
    assert plan.most_rows(APPEND) is None
    plan = after(2**16 + 1, APPEND)
    for _ in range(8):
        assert plan.most_rows(APPEND) is None
        plan.learn(Way.TASKS, Written(messages=tuple(batch(tasks=1))), APPEND)
    assert plan.most_rows(APPEND) == 1024
    plan.refused()
    assert plan.most_rows(APPEND) is None


def test_where_tasks_would_write_more_files_the_driver_writes_larger_batches() -> None:
    assert {after(3_000, table).most_rows(table) for table in (APPEND, GROUPED, KEYED)} == {2**14}
    assert [after(200_000, table).most_rows(table) for table in (APPEND, GROUPED)] == [None, 2**18]
    assert after(2**18 + 1, GROUPED).most_rows(GROUPED) is None
    assert after(10, GROUPED, size=17 * MB).most_rows(GROUPED) is None


def test_the_more_partitions_the_fewer_rows_may_come_of_each_and_never_fewer_than_came_before() -> (
    None
):
    plan = after(100_000, GROUPED, row_bytes=128)
    shares = [rows_of(plan.share(GROUPED, count)) for count in (1, 4, 5, 8, 11)]
    assert shares == [2**18, 2**18, 2**17, 2**17, None]


@pytest.mark.parametrize("rows", [1, 700, 1_000, 30_000, 60_000])
@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_all_shares_together_are_what_the_driver_may_hold(rows: int, partitions: int) -> None:
    plan = after(rows, APPEND)
    share = plan.share(APPEND, partitions)
    assert share is not None or rows * partitions > 1_000_000
    if share is not None:
        assert share.usual >= min(rows, share.rows)
        others = share.rows + 1 - share.usual
        assert (
            partitions * (share.usual * share.usual_bytes + others * share.other_bytes) <= 128 * MB
        )
        assert share.usual_bytes >= 100


def test_of_wide_rows_fewer_may_come() -> None:
    plan = after(1_000, APPEND, row_bytes=32_000)
    shares = [rows_of(plan.share(APPEND, count)) for count in (1, 2, 4, 5)]
    assert shares == [2**12, 2**11, 2**10, None]
    plan.learn(Way.DRIVER, Written(messages=tuple(batch(tasks=1)), row_bytes=100), APPEND)
    assert rows_of(plan.share(APPEND, 4)) == plan.most_rows(APPEND) == 2**12


# -- the width of rows
# --------------------------------------------------------------------------------

UNKNOWN = ArrowBatches(records=128, bytes_limited=True)
MOST = 64 * MB
"""The bytes of an Arrow batch that a JVM of 1 GB bears in each of two tasks."""


def test_without_guards_spark_limits_the_bytes_of_rows_whose_width_is_not_fixed() -> None:
    assert WritePlan().arrow_batches(Way.TASKS) == UNKNOWN
    assert WritePlan(streaming=False).arrow_batches(Way.TASKS) == UNKNOWN
    for row_bytes in (0, 1, 4096, 4097):
        assert after(1_000, APPEND, row_bytes=row_bytes).arrow_batches(Way.TASKS) == UNKNOWN
    plan = after(1_000, APPEND, row_bytes=4096)
    plan.refused()
    assert plan.arrow_batches(Way.TASKS) == UNKNOWN


def test_a_batch_of_which_a_task_did_not_say_how_wide_its_rows_were_leaves_the_limit_in_place() -> (
    None
):
    plan = learnt(APPEND, batch(tasks=1), batch(tasks=1), row_bytes=None)
    assert plan.arrow_batches(Way.TASKS, guardable=True).bytes_limited


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("width", "records"), [(1, 8192), (512, 8192), (513, 4096), (5_000, 512), (8 * MB, 1)]
)
def test_rows_of_fixed_width_are_known_before_the_first_batch(
    streaming: bool, width: int, records: int
) -> None:
    plan = WritePlan(streaming=streaming)
    for way in (Way.TASKS, Way.SPARK_SORT):
        size = plan.arrow_batches(way, width)
        assert size == ArrowBatches(records=records, bytes_limited=False)
    assert plan.arrow_batches(Way.PACKETS, width).records == min(records, 1024)


def test_of_very_wide_rows_few_come_at_once() -> None:
    records = [
        after(10, APPEND, row_bytes=size).arrow_batches(Way.TASKS).records
        for size in (MB, 10 * MB, 100 * MB)
    ]
    assert records == [64, 6, 1]


def teach(plan: WritePlan, widest: int | None, *, mean: int = 100) -> None:
    """One batch that tasks write, with rows of this size at most."""
    messages = tuple(batch(tasks=1))
    plan.learn(Way.TASKS, Written(messages=messages, row_bytes=mean, widest_row=widest), APPEND)


def guarded(plan: WritePlan, way: Way = Way.TASKS) -> ArrowBatches:
    return plan.arrow_batches(way, guardable=True)


@pytest.mark.parametrize("mean", [100, 600, 3_000])
@pytest.mark.parametrize("widest", [100, 2 * KB, 3 * KB, 30 * KB, 60 * KB])
def test_the_rows_of_a_batch_follow_the_widest_row_and_the_guard_bounds_their_bytes(
    mean: int, widest: int
) -> None:
    plan = WritePlan()
    teach(plan, widest, mean=mean)
    size = guarded(plan)
    assert size.most_row_bytes is not None
    assert not size.bytes_limited
    assert size.records.bit_count() == 1, "few numbers occur"
    assert size.records * size.most_row_bytes <= MOST
    assert size.most_row_bytes >= 4 * widest
    assert size.records * mean <= 4 * MB
    assert size.records == 8192 or 2 * size.records * max(mean * 16, widest * 4) > MOST


def test_the_widest_row_of_eight_batches_counts() -> None:
    plan = WritePlan()
    teach(plan, 32 * KB)
    for _ in range(7):
        teach(plan, 100)
        assert guarded(plan).records == 512
    teach(plan, 100)
    assert guarded(plan).records == 8192


def test_rows_are_guarded_only_if_their_widths_are_known_and_the_batch_may_be_written_twice() -> (
    None
):
    plan = WritePlan()
    assert guarded(plan) == UNKNOWN
    teach(plan, 100)
    assert guarded(plan).most_row_bytes == 8 * KB
    assert plan.arrow_batches(Way.TASKS).most_row_bytes is None
    assert guarded(plan, Way.SPARK_SORT).most_row_bytes is None
    assert guarded(plan, Way.PACKETS) == ArrowBatches(
        records=1024, bytes_limited=False, most_row_bytes=64 * KB
    )
    teach(plan, None)
    assert guarded(plan).most_row_bytes is None
    plan.refused()
    assert guarded(plan) == UNKNOWN
    teach(plan, MB, mean=2_000)
    assert guarded(plan).most_row_bytes is None, "more than 128 rows could be too many"


def test_after_a_row_that_was_too_wide_64_batches_go_in_the_safe_way() -> None:
    plan = WritePlan()
    teach(plan, 100)
    plan.row_was_too_wide()
    assert guarded(plan) == UNKNOWN
    for _ in range(64):
        teach(plan, 100)
        assert guarded(plan) == UNKNOWN
    teach(plan, 100)
    assert guarded(plan).records == 8192


@pytest.mark.parametrize(("sigma", "median"), [(0.5, 100), (1.0, 100), (1.5, 20), (2.0, 3)])
def test_widths_that_are_spread_log_normally_are_seldom_too_wide(sigma: float, median: int) -> None:
    dice = np.random.default_rng(43)
    plan = WritePlan()
    twice = guards = 0
    for _ in range(2_000):
        # The largest of 100,000 values, by the distribution of that maximum.
        quantile = dice.random() ** (1 / 100_000)
        widest = int(median * math.exp(sigma * NormalDist().inv_cdf(quantile)))
        most = guarded(plan).most_row_bytes
        guards += most is not None
        if most is not None and widest > most:
            twice += 1
            plan.row_was_too_wide()
        teach(plan, widest)
    assert guards > 1_000
    assert twice <= 20
