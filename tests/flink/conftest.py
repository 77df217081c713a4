"""A Flink for each process of the tests. All tests here are `flink`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kits.flink import Flink, FlinkUnavailable
from tests.kits.marks import marks_folder

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.flink)


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A Flink. Where its jars cannot be had the tests are skipped, or fail if
    `PAIMON_REQUIRE_ORACLE=1`.
    """
    try:
        running = Flink(tmp_path_factory.mktemp("flink"))
    except FlinkUnavailable as why:
        reason = str(why).splitlines()[0]
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            pytest.fail(f"Flink is required and not there: {reason}")
        pytest.skip(f"Flink is not there: {reason}")
    with running:
        yield running
