"""Every request of a stream's batch to an object store fails in turn, in each way in which a
request can fail. Nothing is lost, nothing is there twice, and another reader finds the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_stream.runtime import simulated
from tests.kits.params import few
from tests.kits.seeds import MANY, examples
from tests.kits.store_streams import QUICK, OtherReader, RowStream
from tests.kits.stores import KINDS, Outage, StoreServer
from tests.servers.fault_proxy import Rule
from tests.servers.gateway import Gateway

STORE = "paimon-stream.store"
LATE = 0.15
SLOW = 1.4
"""Seconds, more than the second for which the client waits."""

WAYS: dict[str, Rule] = {
    "cut before": Rule("refuse"),
    "cut during": Rule("cut_body"),
    "cut after": Rule("drop_answer"),
    "cut in the answer": Rule("half_answer"),
    "done late": Rule("late", seconds=LATE),
    "slow": Rule("delay", seconds=0.2),
    "too slow": Rule("hang", seconds=SLOW),
    **{f"answered {status}": Rule("answer", status=status) for status in (409, 412, 429, 500, 503)},
    **{
        f"done, answered {status}": Rule("answer_after", status=status)
        for status in (409, 429, 500, 503)
    },
}
REPRESENTATIVE = ("cut after", "done late", "answered 409", "answered 503")
"""The ways in which requests fail on each kind of store. On S3, they fail in all ways."""
CASES = [
    (kind, way, again)
    for kind in KINDS
    for way in WAYS
    for again in (False, True)
    if MANY or kind == "s3" or (way in REPRESENTATIVE and not again)
]


def is_quick(kind: str, way: str, again: bool) -> bool:
    """On S3, an answer that is lost, and a conflict. Azure and Google are tried by test-stores."""
    return kind == "s3" and (way == "cut after" or (way == "answered 409" and not again))


def step_of(kind: str, again: bool) -> int:
    """Of how many requests one fails in each way. Another one fails in the next way."""
    return 1 if MANY else 6 if kind == "s3" and not again else 15


@pytest.fixture(scope="module")
def reader(s3_server: StoreServer) -> Iterator[OtherReader]:
    reader = OtherReader(s3_server)
    yield reader
    reader.close()


def server_of(kind: str, request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(f"{kind}_server")
    return found


@pytest.mark.parametrize(
    ("kind", "way", "again"),
    few(CASES, is_quick),
    ids=lambda one: ("run", "start")[one] if isinstance(one, bool) else one,
)
def test_a_batch_survives_a_failure_of_each_request(
    request: pytest.FixtureRequest, reader: OtherReader, kind: str, way: str, again: bool
) -> None:
    """In the middle of a run, and with each batch in a run of its own."""
    server, step = server_of(kind, request), step_of(kind, again)
    with server.proxied() as proxy:
        stream = RowStream(server, proxy)
        stream.batch()
        at, fired, tried = list(WAYS).index(way) % step, True, 0
        while fired:
            if again:
                stream.writer = None
            proxy.clear()
            proxy.add(replace(WAYS[way], skip=at))
            stream.batch()
            fired = bool(proxy.fired)
            stream.check()
            at, tried = at + step, tried + fired
        proxy.clear()
        assert tried >= (1 if step > 1 else 10)
        stream.audit()
        if kind == "s3":
            assert reader.ids(stream.location) == stream.expected


@pytest.mark.parametrize("moment", few(["before", "after"], lambda moment: moment == "after"))
def test_a_server_that_is_killed_in_the_middle_of_a_request_is_used_again(
    s3_server: StoreServer, reader: OtherReader, moment: str, tmp_path: Path
) -> None:
    """What is killed is the process that the client talks to. The store behind it keeps what was
    done.
    """
    with Gateway(s3_server.server.port, tmp_path) as gateway:
        patient = {**QUICK, f"{STORE}.max-retries": "8"}
        stream = RowStream(s3_server, gateway, store=patient)
        stream.batch()
        at, deaths = 0, -1
        while deaths < gateway.deaths:
            deaths = gateway.deaths
            gateway.order(Rule(f"die_{moment}", skip=at))
            stream.batch()
            stream.check()
            at += 1 if MANY else 6
        gateway.order()
        assert deaths >= (4 if MANY else 2)
        stream.audit()
        assert reader.ids(stream.location) == stream.expected


@pytest.mark.parametrize("status", few([None, 503], lambda status: status is None))
def test_five_minutes_without_the_store_cost_time_only_at_each_request(
    s3_server: StoreServer, reader: OtherReader, status: int | None
) -> None:
    rule = Rule("refuse" if status is None else "answer", status=status or 0, times=None)
    with s3_server.proxied() as proxy:
        clock = Outage(300, proxy.clear)
        patient = {
            **QUICK,
            "paimon-stream.store.max-retries": "0",
            "paimon-stream.store.max-outage": "10 min",
        }
        stream = RowStream(s3_server, proxy, store=patient, runtime=simulated(1, clock))
        stream.batch()
        at, waited = 0, 300.0
        while waited >= 300:
            clock.waited = 0
            proxy.clear()
            proxy.add(replace(rule, skip=at))
            stream.batch()
            waited = clock.waited
            stream.check()
            at += 1 if MANY else 6
        assert at > 9
        assert stream.errors == []
        stream.audit()
        assert reader.ids(stream.location) == stream.expected


def test_no_batch_fails_in_a_storm(s3_server: StoreServer, reader: OtherReader) -> None:
    """Of all requests a quarter is answered 503."""
    with s3_server.proxied() as proxy:
        stream = RowStream(s3_server, proxy, store={})
        stream.batch()
        proxy.add(Rule("answer", status=503, probability=0.25, times=None))
        for _ in range(examples(3, 100)):
            stream.batch()
        print(
            f"{stream.next_batch} batches, {len(proxy.log)} requests, {proxy.fired} of them answered 503"
        )
        proxy.clear()
        assert stream.errors == []
        stream.audit()
        assert reader.ids(stream.location) == stream.expected
