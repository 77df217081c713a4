"""Whether the rows of the next batch should be brought together, by the files of those before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.spark.spread import Spread
from tests.kits.commits import data_file

KB, MB = 2**10, 2**20


def batch(*, tasks: int, buckets: int = 2, size: int = 100 * KB) -> list[CommitMessage]:
    """Of so many tasks, each with a file of so many bytes for each bucket."""
    return [
        CommitMessage(
            partition=b"",
            bucket=bucket,
            total_buckets=buckets,
            new_files=(replace(data_file(f"{task}-{bucket}", 10), file_size=size),),
        )
        for task in range(tasks)
        for bucket in range(buckets)
    ]


def after(*batches: list[CommitMessage]) -> bool:
    spread = Spread()
    for one in batches:
        spread.note(one)
    return spread.gathers


@pytest.mark.parametrize(("tasks", "expected"), [(1, False), (3, False), (4, True), (200, True)])
def test_many_small_files_are_brought_together(tasks: int, expected: bool) -> None:
    assert after(batch(tasks=tasks)) is expected


def test_large_files_are_left_where_they_are_and_no_task_gets_too_much() -> None:
    assert after(batch(tasks=8, size=4 * MB - 1))
    assert not after(batch(tasks=8, size=4 * MB))
    assert after(batch(tasks=200, size=320 * KB))
    assert not after(batch(tasks=200, size=340 * KB))


def test_gathering_goes_on_until_the_rows_are_many() -> None:
    many, gathered = batch(tasks=8), batch(tasks=1, size=8 * 100 * KB)
    assert after(many, gathered, gathered)
    assert not after(many, gathered, batch(tasks=1, size=33 * MB))
    assert not after(many, gathered, batch(tasks=1, size=33 * MB), batch(tasks=8, size=5 * MB))


def test_a_batch_without_files_tells_nothing() -> None:
    assert after(batch(tasks=8), [])
    assert not after([])
