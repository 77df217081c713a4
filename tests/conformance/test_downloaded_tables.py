"""Other readers read what streams write to Azure and Google Cloud Storage.

Those readers, as the tests have them, read the local disk. So the objects are downloaded, byte by
byte and under their own keys, by the stores' client and without our code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_other_readers import rows_found_by
from tests.kits.params import each_once
from tests.kits.store_streams import RowStream
from tests.kits.stores import StoreServer

TABLES: dict[str, dict[str, Any]] = {
    "pypaimon_rust": {"partition_keys": ["name"]},
    "pypaimon": {"options": {"bucket": "2", "bucket-key": "id"}},
}
"""A table for each reader. Java reads both."""


def downloaded(server: StoreServer, location: str, folder: Path) -> Path:
    """Copies all objects of a table into the folder. Returns the copy's path."""
    import obstore
    from obstore.store import AzureStore, GCSStore

    made = server.settings()
    kind = {"azure": AzureStore, "gcs": GCSStore}[server.kind]
    store = kind(made.bucket, config=made.config, client_options=made.client)
    prefix = location.split("/", 3)[3]
    for page in obstore.list(store, prefix):
        for one in page:
            path = folder / one["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(obstore.get(store, one["path"]).bytes()))
    return folder / prefix


@pytest.mark.parametrize(("kind", "reader"), each_once(["azure", "gcs"], TABLES))
def test_others_read_what_a_stream_wrote(
    request: pytest.FixtureRequest, java: Any, tmp_path: Path, kind: str, reader: str
) -> None:
    server: StoreServer = request.getfixturevalue(f"{kind}_server")
    stream = RowStream(server, None, store={}, table=TABLES[reader])  # type: ignore[arg-type]
    for _ in range(2):
        stream.batch()
        stream.batch()
        stream.writer = None  # a new run
    stream.audit()
    path = downloaded(server, stream.location, tmp_path)
    expected = [{"id": n, "name": f"n{n}"} for n in stream.expected]
    theirs = rows_found_by(reader, path, tmp_path).select(["id", "name"])
    assert theirs.sort_by("id").to_pylist() == expected
    assert sorted(java.read(path), key=lambda one: one["id"]) == expected
    assert len(java.snapshots(path)) == stream.next_batch
