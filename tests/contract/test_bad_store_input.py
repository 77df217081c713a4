"""What users get wrong about an object store: each mistake is one error with its cure, within
seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import InvalidOption, PaimonStreamError, PermissionDenied
from tests.kits.params import few
from tests.kits.stores import SECRETS, StoreServer
from tests.servers.fault_proxy import FaultProxy, Rule

COLUMNS = [("id", "BIGINT")]
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
SECONDS = 15
"""Retries of all kinds together would take minutes."""

LISTS = {"method": "GET", "path": "list-type=2"}
PUTS = {"method": "PUT"}


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with s3_server.proxied() as made:
        yield made


def refused(call: Callable[[], object], kind: type[PaimonStreamError], *parts: str) -> None:
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    took = time.monotonic() - began
    assert took < SECONDS
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert not any(secret in str(caught.value) + repr(caught.value.context) for secret in SECRETS)


def answers(proxy: FaultProxy, status: int, code: str, **where: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    proxy.add(Rule("answer", status=status, body=body, times=None, **where))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "code", "why", "cure"),
    [
        (403, "InvalidAccessKeyId", "does not know these credentials", "Correct the key"),
        (403, "SignatureDoesNotMatch", "does not know these credentials", "Correct the key"),
        (403, "RequestTimeTooSkewed", "clock of this machine", "Set the clock"),
        (301, "PermanentRedirect", "another region", "Give the bucket's region"),
        (400, "AuthorizationHeaderMalformed", "another region", "Give the bucket's region"),
    ],
)
def test_what_every_request_is_answered(
    s3_server: StoreServer, proxy: FaultProxy, status: int, code: str, why: str, cure: str
) -> None:
    location, options = s3_server.place(proxy)
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    answers(proxy, status, code)
    elsewhere = s3_server.place(proxy)[0]
    for call in (
        lambda: PaimonTable.create(elsewhere, COLUMNS, storage_options=options),
        lambda: PaimonTable.load(location, storage_options=options),
        lambda: table.append(ROWS),
        table.snapshots,
        table.to_arrow,
    ):
        refused(call, PermissionDenied, why, cure)


@pytest.mark.parametrize("where", [LISTS, PUTS], ids=["list", "put"])
def test_a_right_that_is_missing(
    s3_server: StoreServer, proxy: FaultProxy, where: dict[str, str]
) -> None:
    location, options = s3_server.place(proxy)
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    table.append(ROWS)
    answers(proxy, 403, "AccessDenied", **where)
    verb = "Cannot list" if where is LISTS else "Cannot create"
    refused(
        lambda: table.append(ROWS), PermissionDenied, verb, "Allow these credentials to list, read"
    )
    proxy.clear()
    assert table.to_arrow().num_rows == 2


def test_without_the_right_to_delete_commits_go_on_and_maintenance_says_so(
    s3_server: StoreServer, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    location, options = s3_server.place(proxy)
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    answers(proxy, 403, "AccessDenied", method="DELETE")
    answers(proxy, 403, "AccessDenied", method="POST", path=r"\?delete")
    for _ in range(3):
        table.append(ROWS)
    assert table.to_arrow().num_rows == 6
    refused(
        lambda: table.expire_snapshots(retain_max=1, retain_min=1, older_than=0),
        PermissionDenied,
        "Cannot delete",
        "Allow these credentials to list, read, write and delete",
    )
    proxy.clear()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=0)
    assert table.verify().healthy


def test_a_bucket_that_is_not_there(store_server: StoreServer) -> None:
    location, options = store_server.place()
    wrong = location.replace("bucket", "nosuchbucket").replace("container@", "nosuchcontainer@")
    for call in (
        lambda: PaimonTable.create(wrong, COLUMNS, storage_options=options),
        lambda: PaimonTable.load(wrong, storage_options=options),
    ):
        refused(
            call, InvalidOption, "no such bucket or container", "Create it, or correct the location"
        )


def test_an_endpoint_without_tls(s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    https = {**options, "s3.endpoint": options["s3.endpoint"].replace("http:", "https:")}
    refused(
        lambda: PaimonTable.load(location, storage_options=https), InvalidOption, "TLS", "http://"
    )
    plain = {**options, "s3.endpoint": "http://store.example.com"}
    refused(lambda: PaimonTable.load(location, storage_options=plain), InvalidOption, "allow-http")


ODD = ["with space", "ümläut-日本", "a+b=c&d", "50%25", "it's (1)", 'quo"te', "tilde~!*"]


@pytest.mark.parametrize("name", few(["/".join(ODD), *ODD], lambda name: "/" in name))
def test_odd_characters_in_a_path(store_server: StoreServer, name: str) -> None:
    location, options = store_server.place()
    there = f"{location}/{name}/t"
    table = PaimonTable.create(there, COLUMNS, storage_options=options)
    table.append(ROWS)
    loaded = PaimonTable.load(there, storage_options=options)
    loaded.append(ROWS)
    assert loaded.to_arrow().num_rows == 4
    assert [one.id for one in loaded.snapshots()] == [1, 2]
    assert loaded.verify().healthy


def test_a_path_of_a_thousand_characters(store_server: StoreServer) -> None:
    location, options = store_server.place()
    start = location.rpartition("://")[2].partition("/")[2]
    fits = f"{location}/{'x' * (850 - len(start))}"
    table = PaimonTable.create(fits, COLUMNS, storage_options=options)
    table.append(ROWS)
    assert table.to_arrow().num_rows == 2
    long = f"{location}/{'x' * (1000 - len(start))}"
    refused(
        lambda: PaimonTable.create(long, COLUMNS, storage_options=options).append(ROWS),
        InvalidOption,
        "shorter",
    )
