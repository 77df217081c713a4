"""Many writers on one table: every row that was acknowledged is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kills import crowds
from tests.kits.java_catalogs import java_with_s3
from tests.kits.stores import StoreServer, started
from tests.servers import postgres


@pytest.mark.full
def test_64_processes_on_a_disk(java: Any, tmp_path: Path) -> None:
    """On two quiet cores it takes four minutes."""
    location = str(tmp_path / "db.db" / "t")
    print(crowds.on_a_disk(location, java, crowds.WRITERS, crowds.COMMITS))


@pytest.mark.full
def test_16_processes_beside_threads_of_java_that_hold_the_lock(
    java: Any, s3_server: StoreServer
) -> None:
    pytest.importorskip("psycopg")
    s3 = s3_server.options()
    java_db = java_with_s3(java, s3, databases=True)
    with started(postgres.start) as server:
        own = {**server.options, "warehouse": "s3://bucket/crowd", "lock.enabled": "true"}
        many = (crowds.BESIDE_JAVA, crowds.JAVAS, crowds.COMMITS_BESIDE_JAVA)
        print(crowds.beside_java(java_db, own, s3, *many))
