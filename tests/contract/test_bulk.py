"""Deleting and listing many objects with few requests."""

from __future__ import annotations

import pytest

from paimon_stream.errors import PermissionDenied, Unavailable
from tests.kits.params import few
from tests.kits.stores import StoreServer, WaitingClock, opened
from tests.servers.fault_proxy import FaultProxy, Rule

pytestmark = pytest.mark.lowest

REFUSED = (
    "<DeleteResult><Deleted><Key>{0}/f0</Key></Deleted><Error><Key>{0}/f1</Key><Code>AccessDenied</Code>"
    "<Message>Access Denied</Message></Error></DeleteResult>"
)


def test_a_thousand_keys_are_deleted_with_one_request(s3_server: StoreServer) -> None:
    with s3_server.proxied() as proxy:
        storage = s3_server.storage(proxy)
        names = [f"f{n}" for n in range(2300)]
        storage.write_all([(name, b"") for name in names[::50]])
        proxy.clear()
        assert storage.delete_all(names) == {}
        assert [one.method for one in proxy.log] == ["POST"] * 3
        assert storage.list_names("") == []


@pytest.mark.parametrize("status", [200, 400])
def test_a_request_for_many_that_is_refused_leaves_none_out(
    s3_server: StoreServer, status: int
) -> None:
    """A policy may refuse single keys."""
    with s3_server.proxied() as proxy:
        storage = s3_server.storage(proxy)
        storage.write_all([(f"f{n}", b"") for n in range(4)])
        body = REFUSED.format(storage.settings.prefix) if status == 200 else None
        proxy.add(Rule(method="POST", action="answer", status=status, body=body))
        proxy.add(Rule(path="delete|f[0-3]$", action="answer", status=403, skip=2))  # a single one
        failed = storage.delete_all([f"f{n}" for n in range(4)])
        assert [type(why) for why in failed.values()] == [PermissionDenied]
        assert all(why.context["path"].endswith(f"/{path}") for path, why in failed.items())
        assert storage.list_names("") == list(failed)


@pytest.mark.parametrize(("status", "error"), [(403, PermissionDenied), (503, Unavailable)])
def test_what_the_store_refuses_as_a_whole_is_not_tried_for_each(
    s3_server: StoreServer, status: int, error: type[Exception]
) -> None:
    with s3_server.proxied() as proxy:
        settings = s3_server.settings(proxy, max_retries=0)
        storage = opened(settings, WaitingClock())
        storage.write("f0", b"")
        proxy.clear()
        proxy.add(Rule(method="POST", action="answer", status=status, times=None))
        failed = storage.delete_all(["f0", "f1"])
        assert {path: type(why) for path, why in failed.items()} == {"f0": error, "f1": error}
        assert {one.method for one in proxy.log} == {"POST"}


def test_an_answer_about_other_files_is_an_error_of_ours(s3_server: StoreServer) -> None:
    """obstore panics there, which is no `Exception`."""
    with s3_server.proxied() as proxy:
        storage = opened(s3_server.settings(proxy, max_outage_millis=1000), WaitingClock())
        storage.write_all([("f0", b""), ("f1", b"")])
        refused = "<Error><Key>another</Key><Code>AccessDenied</Code><Message/></Error>"
        body = f"<DeleteResult>{refused}</DeleteResult>"
        proxy.add(Rule(method="POST", action="answer", status=200, body=body, times=None))
        failed = storage.delete_all(["f0", "f1"])
        assert {path: type(why) for path, why in failed.items()} == {
            "f0": Unavailable,
            "f1": Unavailable,
        }
        assert "cannot be understood" in str(failed["f0"])
        assert storage.read("f0") == b""


# One page after the failure shows that the listing goes on; make test-full has a page behind it, too.
@pytest.mark.parametrize("count", few([1100, 2100], lambda count: count == 1100))
def test_a_listing_goes_on_behind_the_last_key_after_a_failure(
    s3_server: StoreServer, count: int
) -> None:
    with s3_server.proxied() as proxy:
        storage = opened(s3_server.settings(proxy, max_retries=0), WaitingClock())
        names = sorted(f"p={n % 3}/f{n:04}" for n in range(count))
        storage.write_all([(name, b"") for name in names])
        for action in ("half_answer", "drop_answer"):
            proxy.clear()
            proxy.add(Rule(method="GET", path="list-type", action=action, skip=1))
            pages = list(storage.list_below(""))
            assert [stat.path for page in pages for stat in page] == names
            whole = count // 1000
            assert list(map(len, pages)) == [*[1000] * whole, 100]
            assert whole + 1 < len(listings(proxy)) < whole + 5


def listings(proxy: FaultProxy) -> list[str]:
    return [one.path for one in proxy.log if "list-type" in one.path]
