"""Checkpoints in object stores: what Spark wrote there is read with the options of the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from paimon_stream.spark.checkpoint import Checkpoint, Kind, open_checkpoint
from paimon_stream.spark.sink_settings import SinkSettings
from paimon_stream.storage.object_store import ObjectStorage
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import Rule

HOST = "acc.dfs.core.windows.net"


@pytest.fixture
def storage(s3_server: StoreServer) -> ObjectStorage:
    return s3_server.storage()


@pytest.fixture
def options(s3_server: StoreServer) -> Mapping[str, str]:
    return dict(s3_server.server.options)


def location(storage: ObjectStorage) -> str:
    return f"s3a://bucket/{storage.settings.prefix}"


def write(storage: ObjectStorage) -> None:
    """A checkpoint as Spark has it when batch 4 is planned and batch 3 is done."""
    storage.write("metadata", b'{"id":"q"}')
    for batch in (3, 4):
        line = json.dumps({"batchWatermarkMs": 1500 if batch == 3 else 0, "batchTimestampMs": 9})
        storage.write(f"offsets/{batch}", f'v1\n{line}\n{{"logOffset":0}}'.encode())
    storage.write("commits/3", b'v1\n{"nextBatchWatermarkMs":0}')


def test_it_says_what_a_local_one_says(storage: ObjectStorage, options: Mapping[str, str]) -> None:
    write(storage)
    checkpoint = open_checkpoint(f"{location(storage)}/", options)
    assert checkpoint.root == location(storage)
    assert checkpoint.kind() == (Kind.QUERY, checkpoint.root)
    assert (checkpoint.query_id(), checkpoint.planned_batch(), checkpoint.done_batch()) == (
        "q",
        4,
        3,
    )
    assert (checkpoint.watermark(3), checkpoint.watermark(4)) == (1500, None)
    assert None is not checkpoint.offsets_hash(3) != checkpoint.offsets_hash(4) is not None
    assert checkpoint.has_state() is False
    done = checkpoint.last_done_millis(4)
    assert done is not None
    assert done % 1000 == 999
    assert checkpoint.last_done_millis(9) == done
    assert checkpoint.last_done_millis(3) is None


def test_its_kinds_are_those_of_a_local_one(
    storage: ObjectStorage, options: Mapping[str, str]
) -> None:
    def kind() -> Kind:
        return open_checkpoint(location(storage), options).kind()[0]

    assert kind() is Kind.MISSING
    storage.write("metadata", b"")
    assert kind() is Kind.DAMAGED
    write(storage)
    assert kind() is Kind.QUERY
    storage.delete("metadata")
    assert kind() is Kind.NO_METADATA


def test_a_store_that_refuses_is_asked_once(
    s3_server: StoreServer, options: Mapping[str, str]
) -> None:
    with s3_server.proxied() as proxy:
        proxy.add(Rule("answer", times=None, status=403))
        checkpoint = open_checkpoint("s3://bucket/ck", {**options, "s3.endpoint": proxy.url})
        assert checkpoint == Checkpoint(root="s3://bucket/ck", storage=None)
        asked = len(proxy.log)
        assert (checkpoint.query_id(), checkpoint.planned_batch(), checkpoint.kind()[0]) == (
            None,
            None,
            Kind.UNREADABLE,
        )
        assert len(proxy.log) == asked <= 3


def test_what_cannot_be_opened_is_unknown() -> None:
    for wrong in ("s3://bucket", "s3://k:s3cr3t@bucket/t", "oss://bucket/t", "az://c1/t"):
        assert open_checkpoint(wrong).storage is None


def test_the_sinks_options_are_those_of_the_checkpoint_as_far_as_it_knows_them(
    storage: ObjectStorage, options: Mapping[str, str]
) -> None:
    write(storage)
    other = {f"fs.azure.account.key.{HOST}": "a2V5"}
    settings = SinkSettings(
        location=f"abfss://c1@{HOST}/t",
        token="t",
        storage_options={**options, **other},
        options={"paimon-stream.store.max-retries": "2"},
    )
    checkpoint = settings.open_checkpoint(location(storage))
    assert checkpoint.query_id() == "q"
    made: Any = checkpoint.storage
    assert made.settings.max_retries == 2
    assert made.settings.config == storage.settings.config
