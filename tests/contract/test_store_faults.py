"""What each failure of a store becomes, and what is there afterwards. The store is a real server;
the failures come from a proxy in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import pytest

from paimon_stream.errors import (
    AlreadyExists,
    InvalidOption,
    NoSpace,
    NotAtomic,
    NotFound,
    PaimonStreamError,
    PermissionDenied,
    Unavailable,
)
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.object_store import ObjectStorage
from tests.kits.stores import SECRETS, StoreServer, WaitingClock, opened
from tests.servers.fault_proxy import FaultProxy, Rule

pytestmark = pytest.mark.lowest

CREATED, EXISTS = PutResult.CREATED, PutResult.EXISTS
DATA, PATH = b"the content", "snapshot/snapshot-1"
LARGE = b"0123456789abcdef" * (9 << 16)
HUNG = 0.8
ABORTS = tuple(map(int, version("obstore").split(".")[:2])) >= (0, 12)
"""Whether obstore removes the parts of an upload of which one was refused."""
"""Seconds for which a request hangs. The client waits for half of them."""

ALWAYS: dict[str, Any] = {"times": None}


def S(status: int, action: str = "answer", **how: Any) -> Rule:
    return Rule(action, status=status, **how)


CREATES = [
    (Rule("refuse"), Unavailable, False),
    (Rule("cut_body"), Unavailable, False),
    (Rule("drop_answer"), Unavailable, True),
    (Rule("hang", seconds=HUNG), Unavailable, True),
    (Rule("delay", seconds=0.05), CREATED, True),
    (Rule("half_answer"), CREATED, True),
    *((S(status), Unavailable, False) for status in (408, 429, 500, 502, 503, 504)),
    *((S(status, "answer_after"), Unavailable, True) for status in (429, 500, 503)),
    (S(400), InvalidOption, False),
    (S(401), PermissionDenied, False),
    (S(403), PermissionDenied, False),
    (S(404), InvalidOption, False),
    (S(405), InvalidOption, False),
    (S(411), InvalidOption, False),
    (S(413), InvalidOption, False),
    (S(301), PermissionDenied, False),
    (S(501), NotAtomic, False),
    (S(507), NoSpace, False),
    (S(507, "answer_after"), CREATED, True),
    (S(409), CREATED, True),  # nothing was there: it is put again
    (S(412), CREATED, True),
    (
        S(409, "answer_after"),
        EXISTS,
        True,
    ),  # there with our bytes: only the caller knows whether they are its own
    (S(409, **ALWAYS), Unavailable, False),
]

WRITES = [
    *(
        (Rule(action), None, True)
        for action in ("refuse", "cut_body", "drop_answer", "half_answer")
    ),
    (Rule("hang", seconds=HUNG), None, True),
    *((S(status), None, True) for status in (409, 412, 429, 500, 502, 503, 504)),
    (S(503, "answer_after"), None, True),
    (S(503, **ALWAYS), Unavailable, False),
    (S(503, "answer_after", **ALWAYS), Unavailable, True),
    (S(409, **ALWAYS), Unavailable, False),
    (S(400), InvalidOption, False),
    (S(401), PermissionDenied, False),
    (S(403), PermissionDenied, False),
    (S(404), InvalidOption, False),
    (S(413), InvalidOption, False),
    (S(507, **ALWAYS), NoSpace, False),
    (S(507, "answer_after", **ALWAYS), None, True),
]

READS = [
    *((Rule(action), DATA) for action in ("refuse", "drop_answer", "half_answer")),
    (Rule("hang", seconds=HUNG), DATA),
    *((S(status), DATA) for status in (429, 500, 503)),
    (S(503, **ALWAYS), Unavailable),
    (Rule("refuse", **ALWAYS), Unavailable),
    (Rule("hang", seconds=HUNG, **ALWAYS), Unavailable),
    (S(400), InvalidOption),
    (S(401), PermissionDenied),
    (S(403), PermissionDenied),
    (S(404), NotFound),
]

COMPLETES = [
    *((Rule(action), None, True) for action in ("refuse", "drop_answer")),
    (Rule("hang", seconds=HUNG), None, True),
    (S(503), None, True),
    (S(503, **ALWAYS), Unavailable, False),
    (S(503, "answer_after", **ALWAYS), None, True),
    (S(403), PermissionDenied, False),
]


def _id(value: object) -> str:
    if isinstance(value, Rule):
        status = f"-{value.status}" if value.action.startswith("answer") else ""
        return f"{value.action}{status}{'' if value.times else '-always'}"
    return value.__name__ if isinstance(value, type) else ""


@pytest.fixture
def proxy(store_server: StoreServer) -> Iterator[FaultProxy]:
    with store_server.proxied() as proxy:
        yield proxy


@pytest.fixture
def store(
    request: pytest.FixtureRequest, store_server: StoreServer, proxy: FaultProxy
) -> ObjectStorage:
    """A store that has answered before, so that it repeats what failed."""
    parameters = getattr(request.node, "callspec").params  # noqa: B009
    hangs = "rule" in parameters and parameters["rule"].action == "hang"
    settings = store_server.settings(
        proxy, millis=int(HUNG * 500) if hangs else 5000, max_retries=2
    )
    storage = opened(settings, WaitingClock())
    assert not storage.exists(PATH)
    proxy.clear()
    return storage


def fault(proxy: FaultProxy, rule: Rule, method: str, path: str = "") -> None:
    """A copy of the rule, because rules count."""
    proxy.add(
        Rule(rule.action, method, path, status=rule.status, seconds=rule.seconds, times=rule.times)
    )


def outcome(work: Callable[[], object]) -> object:
    """What a call returns, or the class of what it raises."""
    try:
        return work()
    except PaimonStreamError as raised:
        error = raised
    check_error(error)
    return type(error)


def check_error(error: PaimonStreamError) -> None:
    """It names the path, and shows no secrets, addresses or texts of the server."""
    assert PATH.partition("/")[0] in error.context["path"]
    assert error.__context__ is None or isinstance(error.__context__, PaimonStreamError)
    shown = repr(error) + str(error.context)
    assert not any(
        text in shown for text in (*SECRETS, "http", "127.0.0.1", "planned fault", "<Error")
    )


@pytest.mark.parametrize(("rule", "expected", "there"), CREATES, ids=_id)
def test_create(
    store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any, there: bool
) -> None:
    fault(proxy, rule, "PUT")
    assert outcome(lambda: store.put_if_absent(PATH, DATA)) == expected
    proxy.clear()
    assert store.exists(PATH) == there
    if there:
        assert store.read(PATH) == DATA


@pytest.mark.parametrize(("rule", "expected", "there"), WRITES, ids=_id)
def test_write(
    store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any, there: bool
) -> None:
    fault(proxy, rule, "PUT")
    assert outcome(lambda: store.write(PATH, DATA)) == expected
    proxy.clear()
    assert store.exists(PATH) == there


@pytest.mark.parametrize(("rule", "expected"), READS, ids=_id)
def test_read(store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any) -> None:
    store.write(PATH, DATA)
    fault(proxy, rule, "GET")
    assert outcome(lambda: store.read(PATH)) == expected


@pytest.mark.parametrize(("rule", "expected"), READS, ids=_id)
def test_list(store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any) -> None:
    store.write(PATH, DATA)
    fault(proxy, rule, "GET")
    listed = {DATA: ["snapshot-1"], NotFound: InvalidOption}.get(expected, expected)
    assert outcome(lambda: store.list_names("snapshot")) == listed


@pytest.mark.parametrize(
    ("rule", "expected", "there"),
    [
        *((Rule(action), None, False) for action in ("refuse", "drop_answer", "hang")),
        (S(503), None, False),
        (S(503, **ALWAYS), Unavailable, True),
        (S(403), PermissionDenied, True),
    ],
    ids=_id,
)
def test_delete(
    store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any, there: bool
) -> None:
    store.write(PATH, DATA)
    rule.seconds = HUNG
    for method in ("DELETE", "POST"):  # POST: obstore deletes by batches where the store has them
        fault(proxy, rule, method)
    assert outcome(lambda: store.delete(PATH)) == expected
    proxy.clear()
    assert store.exists(PATH) == there


@pytest.mark.parametrize(("rule", "expected", "there"), COMPLETES, ids=_id)
def test_completion_of_parts(
    store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any, there: bool
) -> None:
    last = "comp=blocklist" if store.settings.kind == "azure" else "uploadId"
    fault(proxy, rule, "PUT" if store.settings.kind == "azure" else "POST", last)
    assert outcome(lambda: _upload(store)) == expected
    proxy.clear()
    assert store.exists(PATH) == there
    if there:
        assert store.read(PATH) == LARGE


@pytest.mark.parametrize(
    ("rule", "expected", "there"),
    [
        *((Rule(action), None, True) for action in ("refuse", "cut_body", "drop_answer")),
        (S(503), None, True),
        (S(503, **ALWAYS), Unavailable, False),
        (S(403, **ALWAYS), PermissionDenied, False),
        (S(403), PermissionDenied, False),
    ],
    ids=_id,
)
def test_a_part(
    store: ObjectStorage, proxy: FaultProxy, rule: Rule, expected: Any, there: bool
) -> None:
    fault(proxy, rule, "PUT", "comp=block&" if store.settings.kind == "azure" else "partNumber")
    assert outcome(lambda: _upload(store)) == expected
    assert proxy.fired
    if not there and store.settings.kind != "azure" and ABORTS:
        assert "DELETE" in [entry.method for entry in proxy.log]
    proxy.clear()
    assert store.exists(PATH) == there


def _upload(store: ObjectStorage) -> None:
    with store.open_output(PATH) as stream:
        stream.write(LARGE)


def test_an_error_in_an_answer_of_success_is_no_success(s3_server: StoreServer) -> None:
    """S3 begins its answer before it has put the parts together."""
    with s3_server.proxied() as proxy:
        store = s3_server.storage(proxy, max_retries=1)
        body = "<Error><Code>InternalError</Code><Message>planned fault</Message></Error>"
        proxy.add(Rule("answer", "POST", "uploadId", status=200, body=body, times=None))
        with pytest.raises(Unavailable):
            _upload(store)
        assert not store.exists(PATH)


def test_a_put_that_arrives_late_is_unknown_until_then(
    store: ObjectStorage, proxy: FaultProxy
) -> None:
    proxy.add(Rule("late", "PUT", seconds=0.3))
    with pytest.raises(Unavailable):
        store.put_if_absent(PATH, DATA)
    assert not store.exists(PATH)
    while proxy.log[0].status is None:
        store.exists("another")
    assert store.put_if_absent(PATH, b"of another writer") is EXISTS
    assert store.read(PATH) == DATA


def test_waits_between_conflicts_go_through_the_runtime(
    store: ObjectStorage, proxy: FaultProxy
) -> None:
    proxy.add(S(409, method="PUT", times=None))
    with pytest.raises(Unavailable):
        store.put_if_absent(PATH, DATA)
    assert isinstance(store.runtime.clock, WaitingClock)
    assert store.runtime.clock.waits == 5
    assert proxy.fired == 6


def test_what_cannot_be_read_back_is_unknown(store: ObjectStorage, proxy: FaultProxy) -> None:
    store.write(PATH, DATA)
    proxy.add(S(403, method="GET"))
    with pytest.raises(
        Unavailable,
        match=r"exists already.*4(09|12).*Reading the file back failed.*permission denied",
    ):
        store.put_if_absent(PATH, DATA)


def test_a_stream_of_another_writer_is_not_replaced(
    store: ObjectStorage, proxy: FaultProxy
) -> None:
    """Neither if its name is taken before the stream begins, nor while a small file is written."""
    store.write(PATH, DATA)
    assert outcome(lambda: _upload(store)) == AlreadyExists
    store.delete(PATH)
    with pytest.raises(AlreadyExists):  # noqa: PT012
        with store.open_output(PATH) as stream:
            stream.write(b"small")
            store.write(PATH, DATA)
    assert store.read(PATH) == DATA


def test_a_small_stream_whose_answer_was_lost_is_its_own(
    store: ObjectStorage, proxy: FaultProxy
) -> None:
    proxy.add(Rule("drop_answer", "PUT"))
    with store.open_output(PATH) as stream:
        stream.write(b"small")
    assert store.read(PATH) == b"small"
