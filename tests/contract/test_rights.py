"""docs/stores.md names the rights that this package needs in a store, no more and no fewer."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from pathlib import Path

from docs.generators.stores import RIGHTS, policy
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.runtime import system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.store_client import probe_atomic_create
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.stores import StoreServer
from tests.kits.streams import Stream
from tests.servers.fault_proxy import Entry

LARGE = bytes(9 << 20)


def everything(storage: Storage) -> None:
    """What streams, maintenance and writers of large files do."""
    probe_atomic_create(storage, "snapshot", system().ids)
    bench = Bench(storage=storage)
    stream = Stream(bench)
    for _ in range(2):  # a start and a restart
        stream.start()
        for _ in range(2):
            stream.batch()
    table, now = bench.table, dt.timedelta(0)
    create_tag(table, "a")
    create_tag(table, "b", 2)
    stream.batch()
    rollback_to(table, "a")
    expire_snapshots(table, 1, 1, now, protect_streams=False)
    delete_tag(table, "b")
    remove_orphan_files(table, dry_run=False)
    verify(table, sample=0)
    with storage.open_output("large") as out:
        out.write(LARGE)
    with suppress(KeyError), storage.open_output("given-up") as out:
        out.write(LARGE)
        raise KeyError
    with storage.open_input("large") as source:
        source.read()


def done_by(kind: str, request: Entry) -> str:
    """What a request does with objects."""
    method, (_, _, query) = request.method, request.path.partition("?")
    if method == "DELETE":
        return "abort" if "uploadId" in query else "delete"
    if method == "POST" and ("delete" in query or "comp=batch" in query):
        return "delete"
    if method == "GET" and ("list-type" in query or "comp=list" in query):
        return "read" if kind == "azure" else "list"  # Azure has no right of its own for it
    if kind == "gcs" and "upload" in query:
        return "parts"
    return {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write"}[method]


def test_the_rights_are_those_of_the_requests_that_are_sent(store_server: StoreServer) -> None:
    with store_server.proxied() as proxy:
        everything(store_server.storage(proxy))
        # An expiry beside the commits may still be waiting for its last answer, and a part of the
        # file that was given up may come after the upload was ended.
        wrong = [one for one in proxy.log if one.sent is not None and one.sent >= 500]
        assert [one for one in wrong if "given" not in one.path] == []
        sent = {done_by(store_server.kind, one) for one in proxy.log}
    assert sent == RIGHTS[store_server.kind].keys()


def test_the_policy_in_the_page_has_these_rights() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "stores.md").read_text()
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])
    assert shown == policy()
    actions = {action for one in shown["Statement"] for action in one["Action"]}
    assert actions == set(RIGHTS["s3"].values())
