"""A store that is down for minutes after it has answered costs time only. The minutes are those of
a simulated clock. The server is a real one, behind a proxy that is down.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from paimon_stream.errors import Unavailable
from paimon_stream.runtime import SimulatedClock, system
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.store_client import probe_atomic_create
from tests.kits.params import few
from tests.kits.stores import Outage, StoreServer, opened
from tests.servers.fault_proxy import FaultProxy, Rule

FIVE_MINUTES = 300
LIMIT = 600_000
DOWN = [Rule("refuse", times=None), Rule("answer", status=503, times=None)]


def upload(storage: ObjectStorage) -> None:
    with storage.open_output("new") as stream:
        stream.write(b"small")


VERBS: dict[str, Callable[[ObjectStorage], object]] = {
    "read": lambda storage: storage.read("there"),
    "stat": lambda storage: storage.stat("there"),
    "list": lambda storage: storage.list_names(""),
    "write": lambda storage: storage.write("there", b"1"),
    "write a large file": lambda storage: storage.write("there", bytes(2 << 20)),
    "delete": lambda storage: storage.delete("there"),
    "upload": upload,
}


def waiting(server: StoreServer, proxy: FaultProxy, clock: SimulatedClock) -> ObjectStorage:
    """A storage that has worked, and waits for ten minutes."""
    settings = server.settings(proxy, max_retries=0, max_outage_millis=LIMIT)
    storage = opened(settings, clock)
    storage.write("there", b"1")
    return storage


@pytest.mark.parametrize(
    ("verb", "rule"),
    few(product(VERBS, DOWN), lambda verb, rule: rule.action == "refuse" or verb == "read"),
    ids=lambda one: one.action if isinstance(one, Rule) else one,
)
def test_five_minutes_without_the_store_cost_time_only(
    s3_server: StoreServer, verb: str, rule: Rule
) -> None:
    with s3_server.proxied() as proxy:
        clock = Outage(FIVE_MINUTES, proxy.clear)
        storage = waiting(s3_server, proxy, clock)
        proxy.add(replace(rule))
        VERBS[verb](storage)
        assert FIVE_MINUTES <= clock.waited < FIVE_MINUTES + 20


def test_the_log_says_that_a_job_waits_and_that_the_store_is_back(
    s3_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "paimon_stream")
    with s3_server.proxied() as proxy:
        clock = Outage(FIVE_MINUTES, proxy.clear)
        storage = waiting(s3_server, proxy, clock)
        proxy.add(replace(DOWN[0]))
        storage.read("there")
        said = [(one.levelname, one.getMessage()) for one in caplog.records]
        assert 5 <= len(said) - 1 <= 6, said
        assert {level for level, _ in said[:-1]} == {"WARNING"}
        assert "up to 600 s (paimon-stream.store.max-outage)" in said[0][1]
        assert "failed for 0 s" in said[0][1]
        assert said[-1][0] == "INFO"
        assert "answers again, after 30" in said[-1][1]
        caplog.clear()
        storage.read("there")
        assert not caplog.records


def test_an_outage_has_an_end(s3_server: StoreServer) -> None:
    with s3_server.proxied() as proxy:
        clock = Outage(3600, proxy.clear)
        storage = waiting(s3_server, proxy, clock)
        for verb in ("read", "list", "write"):
            proxy.add(replace(DOWN[0]))
            clock.waited = 0
            with pytest.raises(
                Unavailable, match=r"repeated for 60\d s \(paimon-stream\.store\.max-outage\)"
            ):
                VERBS[verb](storage)
            assert LIMIT <= 1000 * clock.waited < LIMIT + 20_000
            proxy.clear()


def test_a_create_is_answered_when_the_store_is_back(s3_server: StoreServer) -> None:
    """Its effect is unknown, so it is not repeated here. Whoever repeats it finds a store that
    answers.
    """
    with s3_server.proxied() as proxy:
        clock = Outage(FIVE_MINUTES, proxy.clear)
        storage = waiting(s3_server, proxy, clock)
        proxy.add(replace(DOWN[0]))
        with pytest.raises(Unavailable):
            storage.put_if_absent("snapshot-1", b"1")
        assert clock.waited >= FIVE_MINUTES
        assert storage.put_if_absent("snapshot-1", b"1") is PutResult.CREATED


def test_a_store_that_never_worked_is_reported_within_seconds(s3_server: StoreServer) -> None:
    for rule in DOWN:
        with s3_server.proxied() as proxy:
            proxy.add(replace(rule))
            clock = Outage(3600, proxy.clear)
            settings = s3_server.settings(proxy, max_retries=0, max_outage_millis=LIMIT)
            storage = opened(settings, clock)
            for verb, call in VERBS.items():
                clock.waited = 0
                with pytest.raises(Unavailable):
                    call(storage)
                assert clock.waited < 2, verb
            with pytest.raises(Unavailable):
                storage.put_if_absent("a", b"")


WORKER = """
import pickle, sys
from paimon_stream.errors import Unavailable
from paimon_stream.runtime import simulated
from paimon_stream.storage.object_store import ObjectStorage
storage = ObjectStorage(pickle.load(sys.stdin.buffer).settings, runtime=simulated(1))
began = storage.runtime.clock.monotonic()
try:
    storage.read("there")
except Unavailable:
    print(round(storage.runtime.clock.monotonic() - began))
"""


def test_a_worker_waits_for_a_store_that_its_driver_has_used(s3_server: StoreServer) -> None:
    with s3_server.proxied() as proxy:
        storage = opened(s3_server.settings(proxy, max_retries=0, max_outage_millis=LIMIT))
        pickles = [pickle.dumps(storage)]
        storage.write("there", b"1")
        pickles.append(pickle.dumps(storage))
        proxy.add(replace(DOWN[0]))
        waited = [
            subprocess.run(
                [sys.executable, "-c", WORKER], input=one, capture_output=True, check=True
            ).stdout
            for one in pickles
        ]
    assert [int(one) for one in waited] == [1, 605]


@pytest.mark.parametrize("skip", [0, 1], ids=["the first create", "the second create"])
@pytest.mark.parametrize(
    "rule", [Rule("answer", status=503), Rule("drop_answer")], ids=lambda rule: rule.action
)
def test_a_moment_without_the_store_costs_the_probe_another_name(
    s3_server: StoreServer, rule: Rule, skip: int
) -> None:
    with s3_server.proxied() as proxy:
        storage = s3_server.storage(proxy)
        storage.write("there", b"1")
        proxy.add(replace(rule, method="PUT", path=r"/\.probe-", skip=skip))
        probe_atomic_create(storage, "snapshot", system().ids)
        names = {one.path for one in proxy.log if "/.probe-" in one.path}
        assert proxy.fired == 1
        assert len(names) == 2
        assert storage.list_files("snapshot") == storage.list_names("snapshot", ".") == []


def test_the_probe_comes_once_for_a_bucket_and_process(store_server: StoreServer) -> None:
    with store_server.proxied() as proxy:
        storage = store_server.storage(proxy)
        other = ObjectStorage(replace(storage.settings, prefix="wh/db.db/other", location="other"))
        probe_atomic_create(storage, "snapshot", system().ids)
        asked = len(proxy.log)
        assert asked
        probe_atomic_create(storage, "snapshot", system().ids)
        probe_atomic_create(other, "snapshot", system().ids)
        assert len(proxy.log) == asked
