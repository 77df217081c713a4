"""Writers of tables with dynamic buckets beside others: a key never gets a second row."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api import table_writing
from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.report import Phase
from paimon_stream.errors import CorruptMetadata, IndexConflict, UnsupportedFeature
from paimon_stream.format.manifest_avro import decode_manifest_list, encode_manifest_list
from paimon_stream.maintenance import rebuild_index
from paimon_stream.options import BUCKET, Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.lost_batches import listed_batch
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch, Fresh
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.shuffle_packets import pack, unpack
from paimon_stream.write.task import WriteSpec
from tests.kits import steps

COLUMNS = [("k", "BIGINT NOT NULL"), ("v", "STRING")]


class Killed(BaseException):
    pass


class KilledAt:
    """The observer of a process that dies when it reaches a phase."""

    phase: Phase | None = None

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is self.phase:
            raise Killed


@pytest.fixture
def path(tmp_path: Path) -> str:
    location = str(tmp_path / "db.db" / "t")
    PaimonTable.create(
        location, COLUMNS, primary_keys=["k"], options={"dynamic-bucket.target-row-num": "3"}
    )
    return location


def rows(*keys: int, v: str = "a", kind: int = 0) -> pa.Table:
    kinds = pa.array([kind] * len(keys), pa.int8())
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [v] * len(keys), "_VALUE_KIND": kinds})


def append(path: str, *keys: int, v: str = "a") -> None:
    PaimonTable.load(path).append(rows(*keys, v=v).drop_columns(["_VALUE_KIND"]))


def found(path: str) -> dict[int, str]:
    read = PaimonTable.load(path).to_arrow().to_pylist()
    assert max(Counter(row["k"] for row in read).values(), default=1) == 1, "a key has one row"
    return {row["k"]: row["v"] for row in read}


def begun(path: str, given: pa.Table) -> Any:
    """A batch write that has written its files."""
    table = load_table(LocalStorage(path))
    commit = table_writing.batch_commit(table)
    numbering = commit.numbers()
    assert numbering is not None
    spec = WriteSpec(
        storage=table.storage, schema=table.schema, options=table.options, index=numbering.index
    )
    messages = write_keyed_task(spec, given.to_batches(), first_sequence=numbering.first).messages
    return lambda: commit.append(messages, numbering)


def written(judged: JudgedBatch, *keys: int) -> WrittenBatch:
    table, (numbering, first, index) = judged.table, steps.numbered(judged)
    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options, index=index)
    made = write_keyed_task(spec, rows(*keys, v="stream").to_batches(), first_sequence=first)
    return judged.written(made.messages, numbering=numbering)


def stream(path: str, run: str, observer: KilledAt) -> StreamWriter:
    identity = WriterIdentity(user="me", query_id="q", run_id=run, checkpoint="/ck", token="t")
    return StreamWriter(
        storage=LocalStorage(path), identity=identity, options={}, observer=observer
    )


def takes_out_the_last_key(path: str, snapshots: int) -> None:
    """Another engine puts the index of the snapshot before the newest one over the newest index. Then
    it publishes more snapshots.
    """
    folder = Path(path, "snapshot")
    newest = PaimonTable.load(path).latest_snapshot().id
    before, last = (
        json.loads((folder / f"snapshot-{number}").read_text()) for number in (newest - 1, newest)
    )
    for name in ("properties", "baseManifestListSize", "deltaManifestListSize"):
        del last[name]
    theirs = last | {"commitUser": "java", "indexManifest": before["indexManifest"]}
    theirs |= {"baseManifestList": "list-java-0", "deltaManifestList": "list-java-1"}
    lists = Path(path, "manifest")
    live = [
        meta
        for name in (last["baseManifestList"], last["deltaManifestList"])
        for meta in decode_manifest_list((lists / name).read_bytes(), name)
    ]
    for name, metas in (("list-java-0", live), ("list-java-1", [])):
        (lists / name).write_bytes(encode_manifest_list(metas, compression="null", level=1))
    for number in range(newest + 1, newest + 1 + snapshots):
        (folder / f"snapshot-{number}").write_text(json.dumps(theirs | {"id": number}))
    (folder / "LATEST").write_text(str(newest + snapshots))


def test_keys_that_left_the_index_hundreds_of_snapshots_ago_stop_our_next_batch(path: str) -> None:
    append(path, 1)
    append(path, 2)
    takes_out_the_last_key(path, snapshots=300)
    with pytest.raises(CorruptMetadata, match="lacks 1 keys that it had before snapshot 302"):
        append(path, 2)


def test_a_stream_looks_for_lost_keys_down_to_its_newest_batch(path: str) -> None:
    first = Batch(batch_id=0, offsets_hash="first")
    steps.run_batch(stream(path, "one", KilledAt()), first, lambda judged: written(judged, 1))
    append(path, 2)
    takes_out_the_last_key(path, snapshots=1100)
    second = Batch(batch_id=1, offsets_hash="second")
    with pytest.raises(CorruptMetadata, match="lacks 1 keys that it had before snapshot 1102"):
        steps.run_batch(stream(path, "two", KilledAt()), second, lambda judged: written(judged, 2))


def test_two_writes_at_once_end_in_a_conflict(path: str) -> None:
    append(path, 1, 2)
    one, two = begun(path, rows(7, 8)), begun(path, rows(8, 9))
    one()
    with pytest.raises(IndexConflict, match="Write the batch again"):
        two()
    assert set(found(path)) == {1, 2, 7, 8}


@pytest.mark.parametrize("again", [False, True])
def test_prepared_files_are_used_only_by_the_index_of_their_batch(path: str, again: bool) -> None:
    """A batch that was written again, by a later index, may know keys that a rollback takes
    away.
    """
    append(path, 1, 2)
    observer = KilledAt()
    writer, batch = stream(path, "one", observer), Batch(batch_id=0, offsets_hash="plan")
    judged = steps.judge(writer, batch)
    assert isinstance(judged.verdict, Fresh)
    prepared = written(judged, 7)
    if again:
        append(path, 7)
        with pytest.raises(IndexConflict):
            steps.commit(writer, prepared)
        prepared = written(prepared.anew(), 7)
    observer.phase = Phase.STAGED
    with pytest.raises(Killed):
        steps.commit(writer, prepared)
    if again:
        PaimonTable.load(path).rollback_to(1)
    report = steps.run_batch(stream(path, "two", KilledAt()), batch, lambda it: written(it, 7))
    assert report.reused is not again
    append(path, 3, 4)
    append(path, 7, v="newer")
    assert found(path)[7] == "newer"


def test_prepared_files_are_not_used_above_a_rollback_that_took_the_index_of_their_keys(
    path: str,
) -> None:
    append(path, 1, 2)
    newest = PaimonTable.load(path).snapshots()[-1].id
    append(path, 7)
    observer = KilledAt()
    writer, batch = stream(path, "one", observer), Batch(batch_id=0, offsets_hash="plan")
    judged = steps.judge(writer, batch)
    observer.phase = Phase.STAGED
    with pytest.raises(Killed):
        steps.commit(writer, written(judged, 7))
    PaimonTable.load(path).rollback_to(newest)
    writer = stream(path, "two", KilledAt())
    judged = steps.judge(writer, batch)
    assert isinstance(judged.verdict, Fresh)
    why = judged.verdict.why_not_reused
    assert why is not None and "index" in why
    steps.commit(writer, written(judged, 7))
    append(path, 3, 4)
    append(path, 7, v="newer")
    assert found(path)[7] == "newer"


def test_a_batch_is_not_committed_again_without_its_index(path: str) -> None:
    append(path, 1, 2)
    snapshot = PaimonTable.load(path).snapshots()[-1]
    table = load_table(LocalStorage(path))
    with pytest.raises(UnsupportedFeature, match="its hash index is not in the delta list"):
        listed_batch(table, snapshot.commit_user, 0, snapshot.id, snapshot.delta_manifest_list)


def test_a_batch_of_older_keys_beside_a_rebuild_keeps_them_in_the_index(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, 1, 2)
    begun(path, rows(1, kind=3))()
    table = PaimonTable.load(path)
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    publish = begun(path, rows(1, v="again"))  # its key is in the index, and in no file
    (index,) = (Path(path) / "index").iterdir()
    index.unlink()
    real = rebuild_index._Rebuild._publish_index_files

    def late(self: Any) -> Any:
        monkeypatch.setattr(rebuild_index._Rebuild, "_publish_index_files", real)
        publish()
        return real(self)

    monkeypatch.setattr(rebuild_index._Rebuild, "_publish_index_files", late)
    PaimonTable.load(path).rebuild_index(dry_run=False)
    append(path, 30, 31)
    append(path, 1, v="newer")
    assert found(path)[1] == "newer"


@pytest.mark.parametrize("bad", ["x" * 400, None])
def test_a_row_that_its_task_may_ignore_moves_no_other_row(tmp_path: Path, bad: str | None) -> None:
    location = str(tmp_path / "t")
    keys = {
        "primary_keys": ["p", "k"],
        "partition_keys": ["p"],
        "options": {"ignore-delete": "true"},
    }
    PaimonTable.create(location, [("p", "STRING NOT NULL"), *COLUMNS], **keys)  # type: ignore[arg-type]
    table = load_table(LocalStorage(location))
    options = Options({**table.options, BUCKET.key: "4"})
    spec = replace(WriteSpec(storage=table.storage, schema=table.schema, options=options))

    def homes(*partitions: str | None) -> dict[int, int]:
        numbers = pa.array(range(len(partitions)), pa.int64())
        batch = pa.record_batch(
            {"p": pa.array(partitions, pa.string()), "k": numbers, "v": pa.nulls(len(partitions))}
        )
        packets = pa.Table.from_batches(pack(spec, [batch], shuffle_keys=[0, 1, 2, 3], task=0))
        return {
            key: home
            for home in range(4)
            for some in unpack(packets.filter(pc.equal(packets["shuffle_key"], home)).to_batches())
            for key in some["k"].to_pylist()
        }

    good = homes(*["a"] * 20)
    assert len(set(good.values())) == 4
    assert {key: home for key, home in homes(*["a"] * 20, bad).items() if key < 20} == good
