"""A REST catalog: what is asked of the server, what its answers mean, and commits whose answers get
lost.

The server is a double that keeps the rule of Paimon 2.0; Java's own server is in
`tests/conformance`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("urllib3")

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog, errors
from paimon_stream.catalogs import rest
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.catalogs.rest import RestClient
from paimon_stream.cli.exits import MISSING, code_of
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.runtime import SimulatedClock, simulated, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.table.layout import user_folder
from paimon_stream.table.removals import RemovalNotes, Removed
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.params import each_once, one_in
from tests.kits.streams import At, PowerCut, Stream
from tests.servers.rest_double import TOKEN, RestDouble

VECTORS = Path(__file__).parents[2] / "vectors" / "rest"
SERVER = json.loads((VECTORS / "server_1_4_2.json").read_text())
JAVA = json.loads((VECTORS / "java_client_1_4_2.json").read_text())
COLUMNS = [("id", "BIGINT"), ("p", "STRING")]
ROWS = pa.table({"id": [1], "p": ["a"]})
NAMES = itertools.count()


@pytest.fixture
def server() -> Iterator[RestDouble]:
    name = f"rest{next(NAMES)}"
    rest._negotiated.cache_clear()  # an earlier server may have had the same port
    with RestDouble(f"memory://{name}") as double:
        yield double
    MemoryStorage(name).clear()


@pytest.fixture
def cat(server: RestDouble) -> PaimonCatalog:
    made = catalog(server.options())
    made.create_database("db")
    return made


@pytest.fixture
def table(cat: PaimonCatalog) -> PaimonTable:
    return cat.create_table("db.t", COLUMNS)


# -- options
# ----------------------------------------------------------------------------------------------


def test_a_catalog_asks_nothing_when_it_is_made() -> None:
    made = catalog(
        {"metastore": "REST", "uri": "http://127.0.0.1:9", "warehouse": "wh", "token": TOKEN}
    )
    assert isinstance(made, PaimonCatalog)
    assert TOKEN not in repr(made)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"uri": "127.0.0.1:9"}, errors.InvalidOption, "'uri'"),
        ({"uri": "http://u:pa55@x", "token.provider": "dlf"}, errors.UnsupportedFeature, "'dlf'"),
        ({"uri": "http://x", "token.provider": "bear"}, errors.InvalidOption, "Set 'token'"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: dict[str, str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        catalog({"metastore": "rest", "warehouse": "wh", **options}).list_databases()
    assert "pa55" not in str(raised.value)


def test_the_options_of_the_server_are_below_and_above_those_of_the_client(
    server: RestDouble,
) -> None:
    server.defaults |= {"s3.region": "a", "s3.endpoint": "b"}
    server.overrides = {"s3.endpoint": "d", "header.x-over": "1"}
    made: Any = catalog(
        server.options(**{"s3.region": "c", "s3.endpoint": "c", "header.X-Mine": "2"})
    )
    assert {key: made._options[key] for key in ("s3.region", "s3.endpoint")} == {
        "s3.region": "c",
        "s3.endpoint": "d",
    }
    made.list_databases()
    found = server.headers[-1]
    assert (found["x-of-server"], found["x-over"], found["x-mine"]) == ("yes", "1", "2")
    assert [path for _, path, _ in server.log].count("/v1/config?warehouse=wh") == 1  # asked once


def test_a_wrong_token_is_reported_without_the_token(server: RestDouble) -> None:
    with pytest.raises(errors.PermissionDenied, match=r"401.*'token'") as raised:
        catalog(server.options(token="wr0ng-never-shown")).list_databases()
    assert "never-shown" not in str(raised.value) + repr(raised.value.context)


def test_what_is_not_there_ends_a_command_as_in_other_catalogs(cat: PaimonCatalog) -> None:
    for missing in (lambda: cat.get_table("db.none"), lambda: cat.list_tables("none")):
        with pytest.raises(errors.NotFound) as raised:
            missing()
        assert code_of(raised.value) == MISSING


def test_a_server_that_is_away_is_reported_as_unavailable() -> None:
    with pytest.raises(errors.Unavailable, match="gave no answer"):
        catalog(
            {"metastore": "rest", "uri": "http://u:s3cret@127.0.0.1:9", "warehouse": "wh"}
        ).list_databases()


@pytest.mark.parametrize("minutes", [5, 11])
def test_a_server_that_is_away_after_it_answered_is_waited_for_up_to_the_limit(
    minutes: int, server: RestDouble, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    given = server.options(**{"paimon-stream.store.max-outage": "10 min"})
    client = dataclasses.replace(RestClient.of(given), prefix="p", clock=clock)
    client.ask("GET", "databases")
    answer, began = server._answer, clock.monotonic()

    def away(*request: Any) -> Any:
        return (503, {}) if clock.monotonic() - began < 60 * minutes else answer(*request)

    server._answer = away  # type: ignore[method-assign]
    if minutes > 10:
        with pytest.raises(errors.Unavailable, match="answered 503"):
            client.ask("GET", "databases")
    else:
        client.ask("GET", "databases")
    assert 0 <= clock.monotonic() - began - 60 * min(minutes, 10) <= 10
    assert len([one for one in caplog.messages if "paimon-stream.store.max-outage" in one]) == 1
    asked = len(server.log)
    server._answer = lambda *_: (503, {})  # type: ignore[method-assign]
    with pytest.raises(errors.Unavailable):
        client.ask("POST", "databases", {})  # nobody knows whether it was done
    assert len(server.log) == asked + 1


def test_an_outage_of_hours_is_waited_for_as_one_of_minutes(server: RestDouble) -> None:
    clock = SimulatedClock()
    given = server.options(**{"paimon-stream.store.max-outage": "3 h"})
    client = dataclasses.replace(RestClient.of(given), prefix="p", clock=clock)
    client.ask("GET", "databases")
    began = clock.monotonic()
    server._answer = lambda *_: (503, {})  # type: ignore[method-assign]
    with pytest.raises(errors.Unavailable, match="answered 503"):
        client.ask("GET", "databases")
    assert 0 <= clock.monotonic() - began - 3 * 3600 <= 10


def test_a_table_of_a_catalog_is_not_opened_without_the_catalog(server: RestDouble) -> None:
    with pytest.raises(errors.InvalidOption, match="by its name"):
        open_storage("memory://x", {"metastore": "rest", "uri": server.url})


# -- what Java's server answered, and what Java's client sent
# -----------------------------------------------


STATUS_ERRORS = {
    400: errors.InvalidOption,
    401: errors.PermissionDenied,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    500: errors.Unavailable,
}


@pytest.mark.parametrize("seen", SERVER, ids=lambda one: one["name"])
def test_every_answer_of_javas_server_is_understood(
    seen: dict[str, Any], server: RestDouble
) -> None:
    client = RestClient(uri=server.url, prefix="p", headers={"Authorization": f"Bearer {TOKEN}"})
    server._answer = lambda *_: (seen["status"], seen["answer"])  # type: ignore[method-assign]
    verb = "POST" if seen["method"] == "GET" and seen["status"] >= 500 else seen["method"]
    if seen["status"] == 200:
        assert client.ask(verb, "x", seen["request"]) == (seen["answer"] or {})
        return
    with pytest.raises(STATUS_ERRORS[seen["status"]]) as raised:
        client.ask(verb, "x", seen["request"])
    assert raised.value.context["status"] == seen["status"]
    if isinstance(seen["answer"], dict):
        assert raised.value.context["resource"] == seen["answer"]["resourceType"]
        assert str(seen["answer"]["message"])[:50] in raised.value.message


def test_our_requests_are_those_of_javas_client(cat: PaimonCatalog, server: RestDouble) -> None:
    table = cat.create_table("db.t", COLUMNS, partition_keys=["p"])
    table.append(ROWS)
    javas = {
        one["path"].removeprefix("/v1/paimon/"): one["request"]
        for one in JAVA
        if one["method"] == "POST"
    }
    ours = {path.removeprefix("/v1/p/"): body for verb, path, body in server.log if verb == "POST"}
    assert ours["databases"] == javas["databases"]
    created = ours["databases/db/tables"]
    assert created["schema"].pop("comment") is None
    assert created == javas["databases/db/tables"]
    commit, javas_commit = (
        ours["databases/db/tables/t/commit"],
        javas["databases/db/tables/t/commit"],
    )
    assert set(javas_commit) | {"baseSnapshotUuid"} == set(commit)
    assert set(javas_commit["snapshot"]) | {"uuid", "properties"} == set(commit["snapshot"])
    assert commit["statistics"] == []


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        (SchemaChange.set_option("a", "b"), {"action": "setOption", "key": "a", "value": "b"}),
        (SchemaChange.remove_option("a"), {"action": "removeOption", "key": "a"}),
        (SchemaChange.update_comment("x"), {"action": "updateComment", "comment": "x"}),
        (
            SchemaChange.add_column("c", "INT", "why"),
            {
                "action": "addColumn",
                "fieldNames": ["c"],
                "dataType": "INT",
                "comment": "why",
                "move": None,
            },
        ),
        (
            SchemaChange.rename_column("c", "d"),
            {"action": "renameColumn", "fieldNames": ["c"], "newName": "d"},
        ),
        (SchemaChange.drop_column("c"), {"action": "dropColumn", "fieldNames": ["c"]}),
        (
            SchemaChange.update_column_type("c", "BIGINT"),
            {
                "action": "updateColumnType",
                "fieldNames": ["c"],
                "newDataType": "BIGINT",
                "keepNullability": True,
            },
        ),
        (
            SchemaChange.update_column_nullability("c", False),
            {"action": "updateColumnNullability", "fieldNames": ["c"], "newNullability": False},
        ),
        (
            SchemaChange.update_column_comment("c", None),
            {"action": "updateColumnComment", "fieldNames": ["c"], "newComment": None},
        ),
    ],
)
def test_a_change_of_a_schema_is_sent_as_java_has_it(
    change: SchemaChange, sent: dict[str, Any]
) -> None:
    assert rest.change_json(change) == sent


# -- databases and tables
# ------------------------------------------------------------------------------------


def test_databases_and_tables_come_and_go(cat: PaimonCatalog, server: RestDouble) -> None:
    for name in ("c", "a", "b"):
        cat.create_database(name)
    assert cat.list_databases() == ["a", "b", "c", "db"]  # from four pages
    cat.create_database("a", ignore_if_exists=True)
    with pytest.raises(errors.AlreadyExists, match="exists"):
        cat.create_database("a")
    table = cat.create_table("a.t", COLUMNS, comment="mine", options={"bucket": "-1"})
    assert (cat.list_tables("a"), table.location) == (
        ["t"],
        server.table("a.t").path == table.location and table.location,
    )
    with pytest.raises(errors.AlreadyExists):
        cat.create_table("a.t", COLUMNS)
    assert (
        cat.create_table("a.t", COLUMNS, ignore_if_exists=True).location
        == cat.location("a.t")
        == table.location
    )
    cat.rename_table("a.t", "a.u")
    with pytest.raises(errors.InvalidOption, match="cascade"):
        cat.drop_database("a")
    cat.drop_table("a.u")
    cat.drop_table("a.u", ignore_if_not_exists=True)
    with pytest.raises(errors.NotFound):
        cat.drop_table("a.u")
    cat.drop_database("a")
    cat.drop_database("a", ignore_if_not_exists=True)
    for missing in (
        lambda: cat.drop_database("a"),
        lambda: cat.list_tables("a"),
        lambda: cat.get_table("a.t"),
    ):
        with pytest.raises(errors.NotFound):
            missing()


@pytest.mark.parametrize("columns", [[("id", "NO TYPE")], [("id", "INT"), ("id", "INT")]])
def test_a_table_that_cannot_be_is_not_asked_for(
    cat: PaimonCatalog, server: RestDouble, columns: Any
) -> None:
    before = len(server.log)
    with pytest.raises(errors.IncompatibleSchema):
        cat.create_table("db.t", columns)
    with pytest.raises(errors.InvalidOption, match="'path'"):
        cat.create_table("db.t", COLUMNS, options={"path": "/x"})
    assert len(server.log) == before


def test_an_alteration_is_checked_here_and_made_by_the_server(
    cat: PaimonCatalog, table: PaimonTable, server: RestDouble
) -> None:
    cat.alter_table("db.t", [SchemaChange.set_option("write-only", "true")])
    assert cat.get_table("db.t").schema.options["write-only"] == "true"
    before = [verb for verb, *_ in server.log].count("POST")
    cat.alter_table("db.t", [SchemaChange.set_option("write-only", "true")])  # nothing new
    with pytest.raises(errors.IncompatibleSchema):
        cat.alter_table("db.t", [SchemaChange.drop_column("nothing")])
    assert [verb for verb, *_ in server.log].count("POST") == before


def test_branches_are_refused(cat: PaimonCatalog, table: PaimonTable) -> None:
    with pytest.raises(errors.InvalidOption, match="branch"):
        cat.get_table("db.t$branch_b")


def test_an_external_table_publishes_its_files_itself(
    cat: PaimonCatalog, table: PaimonTable, server: RestDouble
) -> None:
    server.table("db.t").external = True
    cat.get_table("db.t").append(ROWS)
    assert server.commits() == []
    assert MemoryStorage(
        server.root.partition("//")[2], root=table.location.rpartition("/")[2]
    ).exists("snapshot/LATEST")


# -- what the server owns
# ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "cure"),
    [
        (lambda table: table.create_tag("x"), "another engine"),
        (lambda table: table.expire_snapshots(), "another engine expires"),
        (lambda table: table.rollback_to(1), "another engine"),
        (lambda table: table.create_branch("x"), "make tags and branches on"),
        (lambda table: open_of(table).put_if_absent("schema/schema-1", b""), "alter_table"),
        (lambda table: open_of(table).write_all([("a", b""), ("tag/tag-x", b"")]), "make tags"),
        (lambda table: announce_all(open_of(table)), "roll back"),
        (lambda table: open_of(table).delete("snapshot/snapshot-1"), "Expire"),
    ],
)
def test_what_the_server_owns_is_not_changed_by_files(
    table: PaimonTable, act: Callable[[PaimonTable], object], cure: str
) -> None:
    table.append(ROWS)
    table.append(ROWS)
    before = files_of(table)
    with pytest.raises(errors.UnsupportedFeature, match=cure):
        act(table)
    assert files_of(table) == before


def announce_all(storage: Storage) -> None:
    """Notes, as a rollback or fast forward does, that the newest snapshot is about to go."""
    latest = SnapshotStore(storage).get(2)
    notes = RemovalNotes(storage, simulated(0), "fast forward", SnapshotRef.of(latest))
    notes.announce([Removed.of(latest)])


def test_a_stream_may_have_a_name_that_begins_like_that_of_a_branch(table: PaimonTable) -> None:
    storage = open_of(table)
    folder = user_folder("branch-x")
    storage.write(f"{folder}/writer", b"")
    assert storage.exists(f"{folder}/writer")


def open_of(table: PaimonTable) -> Storage:
    return table._table.storage


def files_of(table: PaimonTable) -> set[str]:
    return {one.path for page in open_of(table).list_below("") for one in page}


def test_bulk_deletions_leave_what_the_server_owns(table: PaimonTable) -> None:
    storage = open_of(table)
    storage.write("a", b"")
    failed = storage.delete_all(["a", "schema/schema-0"])
    assert list(failed) == ["schema/schema-0"]
    assert not storage.exists("a") and storage.exists("schema/schema-0")


def test_hints_are_the_servers(table: PaimonTable) -> None:
    storage = open_of(table)
    table.append(ROWS)
    assert storage.read("snapshot/LATEST") == storage.read("snapshot/EARLIEST") == b"1"
    storage.write_hint("snapshot/LATEST", b"7")
    storage.delete("snapshot/LATEST")
    assert storage.read("snapshot/LATEST") == b"1"
    assert files_of(table) & {"snapshot/LATEST", "snapshot/EARLIEST"} == set()


def test_nothing_is_maintained_after_commits_and_the_log_says_so_once(
    table: PaimonTable, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "paimon_stream"):
        after, loaded = AfterCommit(protect=protect_last_snapshot, runtime=system()), table._table
        for _ in range(2):
            table.append(ROWS)
            latest = SnapshotStore(loaded.storage).latest()
            assert latest is not None
            after(loaded, latest)
    assert caplog.text.count("its server or another engine expires") >= 1
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_a_snapshot_is_what_the_server_shows(table: PaimonTable, server: RestDouble) -> None:
    """A file that somebody put beside the server's snapshots is none, and a snapshot without a file
    is one.
    """
    server.files = False
    table.append(ROWS)
    table.append(ROWS)
    beside = MemoryStorage(server.root.partition("//")[2], root=table.location.rpartition("/")[2])
    beside.write(
        "snapshot/snapshot-3", json.dumps({**server.table("db.t").snapshots[2], "id": 3}).encode()
    )
    storage = open_of(table)
    assert storage.list_names("snapshot", "snapshot-") == ["snapshot-2"]
    assert not storage.exists("snapshot/snapshot-3")
    assert table.to_arrow().num_rows == 2
    table.append(ROWS)
    assert max(server.table("db.t").snapshots) == 3


def test_files_of_snapshots_that_only_the_server_has_are_no_orphans(
    server: RestDouble, tmp_path: Path
) -> None:
    server.root, server.files = str(tmp_path), False
    cat = catalog(server.options())
    cat.create_database("db")
    table = cat.create_table("db.t", COLUMNS)
    for _ in range(3):
        table.append(ROWS)
    for one in tmp_path.rglob("*"):
        os.utime(one, (0, 0))
    before = files_of(table)
    with pytest.raises(
        errors.CorruptMetadata, match="server shows snapshot 1, but snapshot 3 is the oldest"
    ):
        table.remove_orphan_files(dry_run=False)
    assert files_of(table) == before
    del server.table("db.t").snapshots[1], server.table("db.t").snapshots[2]
    assert table.remove_orphan_files(dry_run=False).count == 4  # the lists of both


# -- commits
# -------------------------------------------------------------------------------------------------


def test_a_commit_names_the_uuid_of_its_base_as_the_server_showed_it(
    table: PaimonTable, server: RestDouble
) -> None:
    for _ in range(3):
        table.append(ROWS)
    bodies = server.commits()
    uuids = [body["snapshot"]["uuid"] for body in bodies]
    assert [body["baseSnapshotUuid"] for body in bodies] == [None, *uuids[:-1]]
    assert len(set(uuids)) == 3
    assert {body["tableId"] for body in bodies} == {server.table("db.t").id}
    assert table.to_arrow().num_rows == 3


def test_a_base_without_a_uuid_is_named_by_null(table: PaimonTable, server: RestDouble) -> None:
    """As after a commit of a client of 1.4, which sends none."""
    table.append(ROWS)
    del server.table("db.t").snapshots[1]["uuid"]
    table.append(ROWS)
    assert server.commits()[-1]["baseSnapshotUuid"] is None
    assert table.to_arrow().num_rows == 2


def test_a_server_of_1_4_drops_the_uuid(table: PaimonTable, server: RestDouble) -> None:
    server.strict = False
    for _ in range(3):
        table.append(ROWS)
    assert [body["baseSnapshotUuid"] for body in server.commits()] == [None] * 3
    assert table.to_arrow().num_rows == 3


def test_another_writer_between_base_and_commit_is_no_loss(
    cat: PaimonCatalog, table: PaimonTable, server: RestDouble
) -> None:
    other = cat.get_table("db.t")
    server.faults += [lambda: other.append(ROWS)]
    report = table.append(ROWS)
    assert report.snapshot_id == 2
    assert table.to_arrow().num_rows == 2


FAULTS = {
    "lose": ["lose"],
    "mute": ["mute"],
    "503": ["503"],
    "503 three times": ["503"] * 3,
    "late": ["late"],
    "late and lost": ["late", "lose"],
    "503 and lose": ["503", "lose"],
    "409": [(409, None)],
    "501": [(501, None)],
    "success is missing": [(200, {})],
    "no JSON": [(200, "<html>")],
    "404 of a gateway": [(404, "<html>")],
}


@pytest.mark.parametrize(("strict", "fault"), each_once([True, False], FAULTS))
def test_a_commit_with_a_lost_answer_counts_once(
    table: PaimonTable, server: RestDouble, strict: bool, fault: str
) -> None:
    server.strict = strict
    table.append(ROWS)
    server.faults += FAULTS[fault]
    report = table.append(ROWS)
    assert server.faults == []
    assert (report.snapshot_id, table.to_arrow().num_rows) == (2, 2)
    assert [one["id"] for one in server.table("db.t").seen] == [1, 2]


@pytest.mark.parametrize("fault", ["lose", "mute", "late", "503"])
def test_what_a_process_forgets_of_its_commits_does_not_matter(
    table: PaimonTable, server: RestDouble, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of 1.4 writes other bytes than ours, so only the nonce shows whose snapshot it
    is.
    """
    server.strict = False
    monkeypatch.setattr(rest, "_remember", lambda *_: None)
    table.append(ROWS)
    server.faults.append(fault)
    assert table.append(ROWS).snapshot_id == 2
    assert [one["id"] for one in server.table("db.t").seen] == [1, 2]


@pytest.mark.parametrize("strict", one_in(2, [True, False]))
def test_threads_may_share_a_table(cat: PaimonCatalog, server: RestDouble, strict: bool) -> None:
    server.strict = strict
    options = {"commit.max-retries": "100", "commit.timeout": "5 min"}
    table = cat.create_table("db.busy", COLUMNS, options=options)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: table.append(ROWS), range(20)))
    assert sorted(one.snapshot_id or 0 for one in reports) == list(range(1, 21))
    assert table.to_arrow().num_rows == 20


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ((400, {"message": "no such statistics", "code": 400}), errors.StorageError),
        ((401, None), errors.PermissionDenied),
        ((403, {"resourceType": "TABLE", "message": "no", "code": 403}), errors.PermissionDenied),
        ((404, {"resourceType": "TABLE", "message": "gone", "code": 404}), errors.TableReplaced),
    ],
)
def test_a_refused_commit_is_undone(
    table: PaimonTable, server: RestDouble, fault: Any, kind: type[errors.PaimonStreamError]
) -> None:
    table.append(ROWS)
    before = files_of(table)
    server.faults.append(fault)
    with pytest.raises(kind) as raised:
        table.append(ROWS)
    assert not isinstance(raised.value, errors.CommitUnknown)
    assert {
        one for one in files_of(table) - before if not one.startswith("_paimon_stream")
    } == set()
    table.append(ROWS)
    assert table.to_arrow().num_rows == 2


def test_a_refusal_after_a_lost_answer_is_no_proof(table: PaimonTable, server: RestDouble) -> None:
    server.faults += ["late", (403, None)]
    before = files_of(table)
    with pytest.raises(errors.CommitUnknown):
        table.append(ROWS)
    assert files_of(table) > before  # nothing was deleted


GATEWAY: Any = (404, "<html>")
RENAMED: Any = (404, {"resourceType": "TABLE", "resourceName": "t", "message": "gone", "code": 404})


@pytest.mark.parametrize(
    ("nth", "answer", "posted"),
    each_once(
        [1, 2, 3, 4],
        [GATEWAY, RENAMED, (401, None)],
        ["done", "lost", "repeated by a proxy"],
        keep=lambda nth, answer, posted: nth == 1,
    ),
)
def test_a_look_that_is_refused_after_a_commit_deletes_nothing(
    table: PaimonTable, server: RestDouble, nth: int, answer: Any, posted: str
) -> None:
    """A table that is renamed while an answer is lost is not found, but its snapshots stay."""
    table.append(ROWS)
    served, answered, looks = server.table("db.t"), server._answer, itertools.count(1)

    def answering(verb: str, parts: list[str], asked: dict[str, str], body: Any) -> Any:
        if len(served.seen) == 2 and parts[-2] == "snapshots" and next(looks) in (nth, nth + 1):
            return answer
        node = answered(verb, parts, asked, body)
        return (
            (200, {"success": False})
            if posted.startswith("rep") and parts[-1] == "commit"
            else node
        )

    server._answer = answering  # type: ignore[method-assign]
    server.faults += ["lose"] * (posted == "lost")
    with suppress(errors.CommitUnknown):
        table.append(ROWS)
    server._answer = answered  # type: ignore[method-assign]
    assert [one["id"] for one in served.seen] == [1, 2]
    assert table.to_arrow().num_rows == 2


def test_an_answer_that_is_not_the_catalogs_does_not_say_that_the_table_is_gone(
    table: PaimonTable, server: RestDouble
) -> None:
    table.append(ROWS)
    server._answer = lambda *_: GATEWAY  # type: ignore[method-assign]
    with pytest.raises(errors.Unavailable, match="404"):
        table.latest_snapshot()


def test_a_table_that_was_created_again_gets_no_commit(
    cat: PaimonCatalog, table: PaimonTable, server: RestDouble
) -> None:
    table.append(ROWS)
    cat.drop_table("db.t")
    with pytest.raises(errors.TableReplaced):
        table.append(ROWS)
    anew = cat.create_table("db.t", COLUMNS)
    with pytest.raises(errors.TableReplaced):
        table.append(ROWS)
    assert anew.latest_snapshot() is None
    anew.append(ROWS)


def test_a_snapshot_that_was_rolled_back_and_taken_by_another_is_no_base(
    cat: PaimonCatalog, table: PaimonTable, server: RestDouble
) -> None:
    """By 2.0's rule the server refuses a commit on a base that is gone, though its id exists."""
    cat.alter_table("db.t", [SchemaChange.set_option("commit.max-retries", "2")])
    served, table = server.table("db.t"), cat.get_table("db.t")
    table.append(ROWS)
    table.append(ROWS)

    def roll_back() -> None:
        gone = served.snapshots.pop(2)
        MemoryStorage(
            server.root.partition("//")[2], root=table.location.rpartition("/")[2]
        ).delete("snapshot/snapshot-2")
        taken = {**gone, "uuid": "another", "deltaManifestList": gone["deltaManifestList"] + "0"}
        served.snapshots[2] = taken

    server.faults.append(roll_back)
    with pytest.raises(errors.PaimonStreamError):
        table.append(ROWS)
    assert sorted(served.snapshots) == [1, 2]


# -- streams
# -------------------------------------------------------------------------------------------------


class RestBench:
    """A bench whose table is of a REST catalog. Its own operations read the files that the server
    writes.
    """

    def __init__(self, server: RestDouble, **options: str) -> None:
        name = server.root.partition("//")[2]
        self.bench = Bench(storage=MemoryStorage(name, root="t"), options=options)
        self.served = server.adopt("db.t", f"{server.root}/t")
        self.cat = catalog(server.options())

    def open(self) -> Storage:
        location, options = self.cat.found("db.t")
        return open_storage(location, options)

    def start(self, stream: Stream, observer: BatchObserver = NO_OBSERVER) -> None:
        stream.start(observer, self.open())


@pytest.fixture
def rest_bench(server: RestDouble) -> RestBench:
    return RestBench(server)


@pytest.mark.parametrize(
    ("fault", "phase", "strict"),
    each_once(
        ["", "lose", "late", "mute", "503"],
        [phase for phase in Phase if phase is not Phase.DISCARDED],
        [True, False],
        keep=lambda fault, phase, strict: phase is Phase.PUBLISHED and strict,
    ),
)
def test_a_stream_that_is_killed_writes_each_batch_once(
    server: RestDouble, rest_bench: RestBench, phase: Phase, fault: str, strict: bool
) -> None:
    server.strict = strict
    stream = Stream(rest_bench.bench)
    rest_bench.start(stream)
    stream.batches(2)
    server.faults += [fault] * bool(fault)
    rest_bench.start(stream, At(phase, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    rest_bench.start(stream)
    stream.batches(2)
    rest_bench.bench.audit([f"me-{batch}-{number}" for batch, number in live(rest_bench.bench)])
    assert [batch for batch, _ in live(rest_bench.bench)] == list(range(stream.next_batch))
    assert len(rest_bench.served.seen) == stream.next_batch


def live(bench: Bench) -> list[tuple[int, int]]:
    """The batches whose files are live, and the files' numbers."""
    return sorted((int(one.split("-")[1]), int(one.split("-")[2])) for one in bench.live_names())


def test_a_kill_between_a_lost_answer_and_the_look_is_judged_by_the_servers_snapshots(
    server: RestDouble, rest_bench: RestBench
) -> None:
    stream = Stream(rest_bench.bench)
    rest_bench.start(stream)
    stream.batch()
    server.faults.append("mute")
    server.files = False  # only the server can tell
    stream.batch()
    rest_bench.start(stream)
    stream.next_batch = 1
    report = stream.batch()
    assert report.snapshot_id is None or report.snapshot_id == 2
    assert [one["id"] for one in rest_bench.served.seen] == [1, 2]


def test_a_stream_goes_on_beside_another_writer(server: RestDouble, rest_bench: RestBench) -> None:
    mine, other = (
        Stream(rest_bench.bench),
        Stream(rest_bench.bench, user="you", query_id="q2", checkpoint="/ck/b"),
    )
    for stream in (mine, other):
        rest_bench.start(stream)
    for _ in range(3):
        mine.batch()
        other.batch()
    assert len(rest_bench.served.seen) == 6
    assert len(rest_bench.bench.live_names()) == 6


# -- data tokens
# ---------------------------------------------------------------------------------------------

HOUR = 3_600_000


@pytest.fixture
def tokens(server: RestDouble) -> Any:
    pytest.importorskip("obstore")
    server.databases["db"] = {}
    server.root = "s3://bucket/wh"
    server.defaults |= {
        "data-token.enabled": "true",
        "s3.region": "r",
        "s3.access-key": "0ld",
        "s3.secret-key": "0ld",
    }
    server._create("db", {"identifier": {"object": "t"}, "schema": {"fields": [], "options": {}}})
    return lambda key, left: server.tokens.append(
        (
            {"fs.s3a.access.key": key, "fs.s3a.secret.key": f"{key}-never-shown"},
            system().clock.now_millis() + left,
        )
    )


def opened(server: RestDouble) -> Any:
    location, options = catalog(server.options()).found("db.t")
    return open_storage(location, options)


def a_minute_later(storage: Any) -> None:
    """The server may be asked for a token again."""
    storage._token = storage._token._replace(asked=storage._token.asked - 61_000)


def key_of(storage: Any) -> str:
    storage._place("x")
    return str(storage.wrapped.settings.config["access_key_id"])


def test_a_store_is_opened_with_the_token_of_the_server(server: RestDouble, tokens: Any) -> None:
    tokens("first", 2 * HOUR)
    storage = opened(server)
    assert [
        path for _, path, _ in server.log if path.endswith("/token")
    ] == []  # not before it is used
    config = (key_of(storage), storage.wrapped.settings.config)[1]
    assert (config["access_key_id"], config["secret_access_key"]) == ("first", "first-never-shown")
    assert config["region"] == "r"
    assert key_of(storage) == "first"
    assert len([path for _, path, _ in server.log if path.endswith("/token")]) == 1
    there = pickle.loads(pickle.dumps(storage))
    assert key_of(there) == "first"
    assert "never-shown" not in repr(storage) + repr(there)


def test_a_token_is_renewed_an_hour_before_it_ends_and_once_a_minute(
    server: RestDouble, tokens: Any
) -> None:
    tokens("short", HOUR // 2)
    tokens("long", 2 * HOUR)
    storage = opened(server)
    assert key_of(storage) == "short"
    assert key_of(storage) == "short"  # asked less than a minute ago
    a_minute_later(storage)
    assert key_of(storage) == "long"
    a_minute_later(storage)
    assert key_of(storage) == "long"
    assert len([path for _, path, _ in server.log if path.endswith("/token")]) == 2


def test_a_token_that_the_store_refuses_is_renewed_at_once(server: RestDouble, tokens: Any) -> None:
    tokens("first", 2 * HOUR)
    tokens("second", 2 * HOUR)
    storage = opened(server)
    asked: list[str] = []

    class Refusing(MemoryStorage):
        def read(self, path: str, limit: int = 0) -> bytes:
            asked.append(path)
            raise errors.PermissionDenied("ExpiredToken")

    assert key_of(storage) == "first"
    storage.wrapped = Refusing()
    for _ in range(2):
        with pytest.raises(errors.PermissionDenied):
            storage.read("manifest/x")  # asked less than a minute ago
    assert asked == ["manifest/x"] * 2
    a_minute_later(storage)
    storage._opened = lambda *_: MemoryStorage("renewed")
    MemoryStorage("renewed").write("manifest/x", b"there")
    assert storage.read("manifest/x") == b"there"
    MemoryStorage("renewed").clear()


def test_a_token_counts_as_long_as_it_lasts_if_the_server_is_away(
    server: RestDouble, tokens: Any
) -> None:
    tokens("first", HOUR // 2)
    storage = opened(server)
    assert key_of(storage) == "first"
    storage._client = dataclasses.replace(storage._client, clock=SimulatedClock())
    a_minute_later(storage)
    server._answer = lambda *_: (503, None)  # type: ignore[method-assign]
    assert key_of(storage) == "first"
    storage._token = storage._token._replace(ends=1, asked=0)
    with pytest.raises(errors.Unavailable):
        key_of(storage)


def test_threads_whose_token_is_refused_all_go_on(server: RestDouble, tokens: Any) -> None:
    tokens("first", 2 * HOUR)
    tokens("second", 2 * HOUR)
    storage, together = opened(server), Barrier(4)

    class Refusing(MemoryStorage):
        def read(self, path: str, limit: int = 0) -> bytes:
            together.wait(900)
            raise errors.PermissionDenied("ExpiredToken")

    assert key_of(storage) == "first"
    storage.wrapped = Refusing()
    a_minute_later(storage)
    storage._opened = lambda *_: MemoryStorage("renewed")
    MemoryStorage("renewed").write("manifest/x", b"there")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(storage.read, ["manifest/x"] * 4)) == [b"there"] * 4
    assert 2 <= len([path for _, path, _ in server.log if path.endswith("/token")]) <= 5
    MemoryStorage("renewed").clear()


def test_an_executor_waits_for_the_server_that_has_answered_the_driver(
    server: RestDouble, tokens: Any
) -> None:
    tokens("first", 2 * HOUR)
    sent = pickle.dumps(opened(server))
    rest._ANSWERED.clear()  # as in another process
    there, clock = pickle.loads(sent), SimulatedClock()
    there._client = dataclasses.replace(there._client, clock=clock)
    answer, began = server._answer, clock.monotonic()
    server._answer = lambda *asked: (503, {}) if clock.monotonic() - began < 300 else answer(*asked)  # type: ignore
    assert key_of(there) == "first"


# -- secrets
# -------------------------------------------------------------------------------------------------


def test_secrets_are_nowhere(server: RestDouble, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = catalog(
            server.options(
                **{"header.x-secret": "h3ader-never-shown", "s3.secret-key": "k3y-never-shown"}
            )
        )
        made.create_database("db")
        table = made.create_table("db.t", COLUMNS)
        table.append(ROWS)
        said = [
            repr(made),
            repr(table),
            repr(table._table),
            repr(open_of(table)),
            repr(made.found("db.t")[0]),
        ]
        server.faults.append(
            (403, {"message": f"bad token {TOKEN} or h3ader-never-shown", "resourceType": "TABLE"})
        )
        with pytest.raises(errors.PermissionDenied) as raised:
            table.append(ROWS)
        said += [str(raised.value), repr(raised.value.context)]
    assert "never-shown" not in "".join(said) + caplog.text
    assert all("never-shown" not in json.dumps(body) for _, _, body in server.log)
    beside = MemoryStorage(server.root.partition("//")[2])
    found = [beside.read(one.path) for page in beside.list_below("") for one in page]
    assert found and not any(b"never-shown" in one for one in found)


@pytest.mark.parametrize("token", ["jwt-" * 200, "a1b-never-shown", ""])
def test_a_server_that_repeats_the_login_does_not_bring_it_into_messages(
    server: RestDouble, token: str
) -> None:
    """Neither a token that is longer than what is shown of an answer, nor one that has a header's
    value in it.
    """
    server._serve = lambda *_: (403, {"message": f"no right for {token}"})  # type: ignore[method-assign]
    with pytest.raises(errors.PermissionDenied, match="no right for") as raised:
        catalog(server.options(token=token, **{"header.version": "1"})).list_databases()
    assert "jwt-" not in str(raised.value) and "never-shown" not in str(raised.value)
