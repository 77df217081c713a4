"""A Flink for each process of the tests. All tests here are `flink`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kits.flink import Flink
from tests.kits.marks import marks_folder
from tests.kits.stores import started

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.flink)


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A Flink. Where its jars cannot be had the tests are skipped, or fail if
    `PAIMON_REQUIRE_ORACLE=1`.
    """
    with started(lambda _: Flink(tmp_path_factory.mktemp("flink")), "pyspark") as running:
        yield running
