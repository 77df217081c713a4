"""Verification: nothing is found on healthy tables, and every kind of damage is found under its
code.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidOption
from paimon_stream.format.avro_file import encode_file, packed_blocks_of
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import FileKind, IndexFileMeta, ManifestEntry, SimpleStats
from paimon_stream.format.manifest_avro import encode_manifest_list
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, encode_snapshot
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.options import Options
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.journal import Journal
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table
from paimon_stream.verify.findings import Findings, VerifyReport
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage
from tests.kits.manifests import encode_manifest
from tests.kits.races import Meanwhile
from tests.unit.maintenance.test_orphans import entry, grown

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = sorted(one.name for one in GOLDEN.iterdir() if (one / "db.db").is_dir())


def look(table: Table, storage: Storage | None = None, sample: int = 1000) -> VerifyReport:
    return verify(
        replace(table, storage=storage or table.storage), sample=sample, runtime=simulated(0)
    )


def in_memory(name: str) -> Table:
    """A golden table, copied into memory."""
    root = GOLDEN / name / "db.db" / "t"
    storage = MemoryStorage()
    for path in root.rglob("*"):
        if path.is_file():
            storage.write(path.relative_to(root).as_posix(), path.read_bytes())
    return load_table(storage)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_on_what_java_wrote(name: str) -> None:
    report = look(load_table(LocalStorage(str(GOLDEN / name / "db.db" / "t"))))
    assert report.findings == ()
    assert report.healthy
    assert report.checked["sampled files"] > 0
    assert report.checked["snapshots"] > 0


def test_nothing_is_found_on_what_we_wrote() -> None:
    bench = grown().bench
    assert look(bench.table, sample=0).findings == ()


def test_an_empty_table_is_healthy() -> None:
    assert look(Bench().table).findings == ()


def test_nothing_is_written() -> None:
    table = in_memory("pk_updates")
    storage = FaultyStorage(table.storage)
    look(table, storage)
    assert {one.verb for one in storage.operations} <= {
        "read",
        "stat",
        "list_files",
        "list_folders",
        "open_input",
    }


def test_the_method_of_the_table_reports_its_progress(
    golden: Callable[[str], tuple[Path, Any]],
) -> None:
    path, _ = golden("append_partitioned")
    calls: list[tuple[str, int, int | None]] = []
    report = PaimonTable.load(str(path)).verify(sample=2, progress=lambda *one: calls.append(one))
    assert report.healthy and report.to_json()["healthy"] is True
    assert report.checked["sampled files"] == 2
    assert {what for what, _, _ in calls} == {"folders", "snapshots", "sample"}


# -- damage ---------------------------------------------------------------------------------------


class Damage:
    """A golden table in memory, and what damages it."""

    def __init__(self, name: str = "append_bucketed") -> None:
        self.table = in_memory(name)
        self.storage = self.table.storage
        self.snapshots = SnapshotStore(self.storage)
        self.manifests = ManifestStore(self.storage)

    @property
    def latest(self) -> Snapshot:
        found = self.snapshots.latest()
        assert found is not None
        return found

    def snapshot(self, **change: Any) -> None:
        """Writes the newest snapshot again."""
        self.put(replace(self.latest, **change))

    def put(self, snapshot: Snapshot) -> None:
        self.storage.write(f"snapshot/snapshot-{snapshot.id}", encode_snapshot(snapshot))

    def append(self, **change: Any) -> Snapshot:
        """One more snapshot, without changes of its own but those given."""
        latest = self.latest
        metas = self.manifests.base_and_delta(latest)
        size = self.write_list("manifest-list-more-0", metas)
        nothing = self.write_list("manifest-list-more-1", ())
        following: dict[str, Any] = {
            "id": latest.id + 1,
            "base_manifest_list": "manifest-list-more-0",
            "base_manifest_list_size": size,
            "delta_manifest_list": "manifest-list-more-1",
            "delta_manifest_list_size": nothing,
            "delta_record_count": 0,
            "commit_identifier": latest.commit_identifier + 1,
            **change,
        }
        self.put(replace(latest, **following))
        self.storage.write("snapshot/LATEST", str(latest.id + 1).encode())
        return self.latest

    def write_list(self, name: str, metas: Any) -> int:
        data = encode_manifest_list(list(metas), compression="zstd", level=1)
        self.storage.write(f"manifest/{name}", data)
        return len(data)

    def entries(
        self, change: Callable[[list[ManifestEntry]], list[ManifestEntry]], **meta: Any
    ) -> None:
        """Writes the newest delta manifest and its list again. `meta` changes the entry of the
        list.
        """
        latest = self.latest
        (old,) = self.manifests.delta(latest)
        made = change(self.manifests.read(old))
        data = encode_manifest(made, compression="zstd", level=1)
        self.storage.write(f"manifest/{old.file_name}", data)
        added = sum(one.kind is FileKind.ADD for one in made)
        fitting = {
            "file_size": len(data),
            "num_added_files": added,
            "num_deleted_files": len(made) - added,
            **meta,
        }
        size = self.write_list(latest.delta_manifest_list, [replace(old, **fitting)])
        self.snapshot(delta_manifest_list_size=size)

    def first(self, **change: Any) -> None:
        """Changes the first entry of the newest delta manifest."""
        self.entries(
            lambda all_: [replace(all_[0], file=replace(all_[0].file, **change)), *all_[1:]]
        )

    def data_path(self) -> str:
        one = self.manifests.read(self.manifests.delta(self.latest)[0])[0]
        return self.table.layout.data_file(one.partition, one.bucket, one.file.file_name)

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Writes the rows of a data file again. The manifest has the same number of bytes."""
        path = self.data_path()
        rows = change(pq.read_table(pa.BufferReader(self.storage.read(path))))
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        data = sink.getvalue().to_pybytes()
        self.storage.write(path, data)
        self.first(file_size=len(data))


def shifted(column: str, by: int) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(column)
        values = [None if one is None else one + by for one in rows.column(column).to_pylist()]
        return rows.set_column(
            at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type)
        )

    return change


def named(column: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(column)
        return rows.set_column(
            at, rows.schema.field(at), pa.array([value] * len(rows), rows.schema.field(at).type)
        )

    return change


def swap_delete(all_: list[ManifestEntry]) -> list[ManifestEntry]:
    gone = replace(
        all_[0], kind=FileKind.DELETE, file=replace(all_[0].file, file_name="never-there")
    )
    return [*all_, gone]


def add_again(d: Damage) -> None:
    latest = d.latest
    d.append(
        delta_manifest_list=latest.delta_manifest_list,
        delta_manifest_list_size=latest.delta_manifest_list_size,
        delta_record_count=latest.delta_record_count,
        total_record_count=latest.total_record_count + latest.delta_record_count,
    )


def lose_by_merging(d: Damage) -> None:
    kept = d.manifests.base_and_delta(d.latest)[1:]
    d.append(base_manifest_list_size=d.write_list("manifest-list-more-0", kept))
    size = d.write_list("manifest-list-more-0", kept)
    d.snapshot(base_manifest_list_size=size)


def journal_with_lost_files(d: Damage) -> None:
    scene = grown()
    made = replace(entry(scene, "prepared"), batch_id=900)
    Journal(d.storage, "me").write(made)


def delta_manifest(d: Damage) -> str:
    return f"manifest/{d.manifests.delta(d.latest)[0].file_name}"


def delta_list(d: Damage) -> str:
    return f"manifest/{d.latest.delta_manifest_list}"


def statistics(content: bytes) -> Callable[[Damage], None]:
    def make(d: Damage) -> None:
        d.storage.write("statistics/s", content)
        d.snapshot(statistics="s")

    return make


def broken_index_manifest(d: Damage) -> None:
    d.storage.write("manifest/i", b"Obj")
    d.snapshot(index_manifest="i")


def write(path: str, data: bytes) -> Callable[[Damage], None]:
    return lambda d: d.storage.write(path, data)


def each(**change: Any) -> Callable[[Damage], None]:
    return lambda d: d.entries(lambda all_: [replace(one, **change) for one in all_])


def other_bucket(d: Damage) -> None:
    """The entries, and the files, in the next bucket."""
    for one in d.manifests.read(d.manifests.delta(d.latest)[0]):
        moved = (one.bucket + 1) % one.total_buckets
        old, new = (
            d.table.layout.data_file(one.partition, at, one.file.file_name)
            for at in (one.bucket, moved)
        )
        d.storage.write(new, d.storage.read(old))
    d.entries(
        lambda all_: [replace(one, bucket=(one.bucket + 1) % one.total_buckets) for one in all_]
    )


def overlapping(d: Damage) -> None:
    wide = {"min_sequence_number": 0, "max_sequence_number": 10**6}
    d.entries(lambda all_: [replace(one, file=replace(one.file, **wide)) for one in all_])


def wrong_bounds(d: Damage) -> None:
    """The bounds of another file."""
    (meta,) = d.manifests.delta(d.latest)
    columns = d.table.schema.fields
    types = [one.type for one in columns]
    high = serialize(types, [None] * len(types))
    d.first(
        value_stats=SimpleStats(min_values=high, max_values=high, null_counts=(77,) * len(types)),
        value_stats_cols=None,
    )
    assert meta


def contradictory_schema(d: Damage) -> None:
    """A schema in which a text column is summed."""
    old = d.storage.read(f"schema/schema-{d.table.schema.id}").decode()
    engine = '"merge-engine" : "aggregation", "fields.default-aggregate-function" : "sum", '
    d.storage.write(
        "schema/schema-0", old.replace('"options" : {', '"options" : {' + engine).encode()
    )


def lookup_switched_on(d: Damage) -> None:
    """The files are of a schema without lookup, the table's newest schema has it."""
    before = d.storage.read("schema/schema-0").decode()
    assert before.count('"lookup"') == 1
    d.storage.write("schema/schema-1", before.replace('"id" : 0,', '"id" : 1,', 1).encode())
    d.storage.write("schema/schema-0", before.replace('"lookup"', '"none"').encode())


PLAIN = "append_bucketed"


def go_on_after_the_end(damage: Damage) -> None:
    """A stream that commits after a batch commit of its user."""
    damage.append(commit_user="flink", commit_identifier=1)
    damage.append(commit_user="flink", commit_identifier=BATCH_IDENTIFIER)
    damage.append(commit_user="flink", commit_identifier=2)


BROKEN = {
    "snapshot-broken": write("snapshot/snapshot-1", b"{]"),
    "snapshot-id": lambda d: d.storage.write(
        "snapshot/snapshot-3", d.storage.read("snapshot/snapshot-2")
    ),
    "record-count-line": lambda d: d.put(replace(d.snapshots.get(1), total_record_count=7)),
    "watermark-back": lambda d: d.put(replace(d.snapshots.get(1), watermark=7)),
    "time-back": lambda d: d.snapshot(time_millis=5),
    "tag-broken": write("tag/tag-x", b""),
    "statistics-missing": lambda d: d.snapshot(statistics="stat-none"),
    "statistics-broken": statistics(b"?"),
    "statistics-schema": statistics(b'{"schemaId": 9}'),
    "index-manifest-missing": lambda d: d.snapshot(index_manifest="index-manifest-none"),
    "index-manifest-broken": broken_index_manifest,
    "list-missing": lambda d: d.storage.delete(delta_list(d)),
    "list-broken": lambda d: d.storage.write(delta_list(d), b"x"),
    "list-size": lambda d: d.snapshot(delta_manifest_list_size=3),
    "manifest-missing": lambda d: d.storage.delete(delta_manifest(d)),
    "manifest-broken": lambda d: d.storage.write(delta_manifest(d), b"Obj\1"),
    "manifest-size": lambda d: d.entries(list, file_size=3),
    "manifest-counts": lambda d: d.entries(list, num_added_files=77),
    "manifest-bounds": lambda d: d.entries(list, min_bucket=7, max_bucket=9),
    "bucket-out-of-range": each(total_buckets=1),
    "entry-impossible": lambda d: d.first(delete_row_count=10**6),
    "delta-record-count": lambda d: d.snapshot(delta_record_count=1),
    "total-record-count": lambda d: d.snapshot(total_record_count=1),
    "file-missing": lambda d: d.storage.delete(d.data_path()),
    "file-size": lambda d: d.storage.write(d.data_path(), b"PAR1"),
    "file-broken": lambda d: d.storage.write(
        d.data_path(), bytes(len(d.storage.read(d.data_path())))
    ),
    "duplicate-add": add_again,
    "delete-without-add": lambda d: d.entries(swap_delete),
    "merge-changed-files": lose_by_merging,
    "bucket-counts-differ": each(total_buckets=64),
    "row-count": lambda d: d.first(row_count=10**6),
    "row-bucket": other_bucket,
    "statistics-of-file": wrong_bounds,
    "identifier-repeated": lambda d: d.append(commit_identifier=d.latest.commit_identifier),
    "identifier-back": lambda d: d.append(commit_identifier=0),
    "batch-identifier-of-stream": go_on_after_the_end,
    "hint-unreadable": write("snapshot/LATEST", b"abc"),
    "latest-hint": write("snapshot/LATEST", b"999"),
    "latest-hint-behind": write("snapshot/LATEST", b"1"),
    "earliest-hint": write("snapshot/EARLIEST", b"9"),
    "consumer-broken": write("consumer/consumer-x", b"{}"),
    "consumer-ahead": write("consumer/consumer-x", b'{"nextSnapshot": 77}'),
    "journal-broken": write("_paimon_stream/me/7", b"?"),
    "journal-files-missing": journal_with_lost_files,
}
DAMAGE: dict[str, tuple[str, Callable[[Damage], object]]] = {
    **{code: (PLAIN, make) for code, make in BROKEN.items()},
    "snapshot-gap": ("pk_updates", lambda d: d.storage.delete("snapshot/snapshot-3")),
    "schema-missing": ("evolved", lambda d: d.storage.delete("schema/schema-1")),
    "schema-broken": ("evolved", write("schema/schema-1", b"{}")),
    "schema-contradictory": ("pk_updates", contradictory_schema),
    "row-partition": ("append_partitioned", lambda d: d.rewrite(named("dt", "elsewhere"))),
    "sequence-range": ("pk_partitioned", lambda d: d.rewrite(shifted("_SEQUENCE_NUMBER", 10_000))),
    "sequence-overlap": ("pk_partitioned", overlapping),
    "levels-without-lookup": ("pk_lookup_levels", lookup_switched_on),
    "key-twice": ("compaction/deletion_vectors", lambda d: d.snapshot(index_manifest=None)),
    "consumer-behind": ("expired", write("consumer/consumer-x", b'{"nextSnapshot": 1}')),
}


@pytest.mark.parametrize("code", DAMAGE)
def test_damage_is_found_under_its_code(code: str) -> None:
    name, make = DAMAGE[code]
    damage = Damage(name)
    make(damage)
    report = look(damage.table)
    codes = {one.code for one in report.findings}
    assert code in codes, codes
    for one in report.findings:
        assert one.message and one.cure
    json.dumps(report.to_json())


def test_the_last_commit_of_a_bounded_stream_of_flink_is_right() -> None:
    """Flink commits the end of a bounded stream with the identifier of batch commits, under the
    user of the stream. A compaction may follow under the same identifier.
    """
    damage = Damage()
    damage.append(commit_user="flink", commit_identifier=1)
    damage.append(commit_user="flink", commit_identifier=BATCH_IDENTIFIER)
    damage.append(commit_user="flink", commit_identifier=BATCH_IDENTIFIER)
    assert look(damage.table).findings == ()


@pytest.mark.parametrize(
    ("user", "properties"),
    [("paimon-stream_1234", {}), ("own", {"paimon-stream.version": "0.1.0"})],
)
def test_a_batch_commit_of_ours_is_not_the_end_of_a_stream(
    user: str, properties: dict[str, str]
) -> None:
    damage = Damage()
    damage.append(commit_user=user, commit_identifier=1)
    damage.append(commit_user=user, commit_identifier=BATCH_IDENTIFIER, properties=properties)
    assert [one.code for one in look(damage.table).findings] == ["batch-identifier-of-stream"]


def test_a_gap_in_the_batches_of_a_stream_is_reported() -> None:
    damage = Damage()
    user = "paimon-stream_1234"
    damage.append(commit_user=user, commit_identifier=1)
    damage.put(replace(damage.latest, id=damage.latest.id + 1, commit_identifier=5))
    assert {one.code for one in look(damage.table).findings} >= {"identifier-gap"}


def test_findings_of_a_kind_are_bounded_and_counted() -> None:
    bench = Bench()
    names = [f"f-{n}" for n in range(250)]
    bench.committer().commit(bench.request(0, [bench.message(name) for name in names]))
    for name in names:
        bench.storage.delete(f"bucket-0/{name}")
    report = look(bench.table, sample=0)
    assert [one.code for one in report.findings] == ["file-missing"] * 100
    assert report.omitted == {"file-missing": 150}
    bench.committer().commit(bench.request(1, [bench.message("last")]))
    assert look(bench.table, sample=0).omitted == {"file-missing": 150}


def test_one_lost_file_is_one_finding_with_the_snapshots_and_tags_that_need_it() -> None:
    bench = Bench()
    for number in range(4):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    create_tag(bench.table, "kept", 3, runtime=bench.runtime)
    bench.committer().commit(bench.request(4, [bench.compaction("f1", "f2", into="big")]))
    bench.storage.delete("bucket-0/f1")
    (lost,) = look(bench.table, sample=0).findings
    assert (lost.code, lost.path, lost.snapshots, lost.tags) == (
        "file-missing",
        "bucket-0/f1",
        ((2, 4),),
        ("kept",),
    )
    assert lost.message == (
        "File bucket-0/f1 does not exist. Needed by snapshots 2 to 4 and tag 'kept'."
    )
    manifest = bench.manifests.delta(bench.snapshots.get(4))[0].file_name
    bench.storage.delete(f"manifest/{manifest}")
    _, gone = look(bench.table, sample=0).findings
    assert (gone.code, gone.snapshots, gone.tags) == ("manifest-missing", ((4, 5),), ())
    assert gone.to_json()["snapshots"] == [[4, 5]]


@pytest.mark.parametrize("seed", range(2))
def test_bytes_damaged_anywhere_never_make_it_fail(seed: int) -> None:
    rng = random.Random(seed)
    for name in ("pk_updates", "evolved", "append_partitioned"):
        table = in_memory(name)
        paths = [
            one.path
            for folder in _folders(table.storage)
            for one in table.storage.list_files(folder)
        ]
        for path in rng.sample(paths, 8):
            before = table.storage.read(path)
            data = bytearray(before)
            for _ in range(3):
                data[rng.randrange(len(data))] = rng.randrange(256)
            table.storage.write(
                path, bytes(data[: rng.choice((len(data), rng.randrange(len(data) + 1)))])
            )
            look(table)
            table.storage.write(path, before)
        assert look(table).findings == ()


def _folders(storage: Storage, folder: str = "") -> list[str]:
    below = [f"{folder}/{one}".lstrip("/") for one in storage.list_folders(folder)]
    return [folder, *(deeper for one in below for deeper in _folders(storage, one))]


def test_a_block_that_several_manifests_have_is_judged_in_each() -> None:
    """Merging copies full blocks. Their entries are checked once, unless the manifests give them
    other counts or something is wrong with them.
    """
    bench = Bench(options={"manifest.merge-min-count": "2"})
    for number, files in enumerate((1000, 1, 1)):
        messages = [bench.message(f"f{number}-{one}") for one in range(files)]
        bench.committer().commit(bench.request(number, messages))
    found = {}
    for name in bench.storage.list_names("manifest", "manifest-"):
        path = f"manifest/{name}"
        schema, codec, blocks = packed_blocks_of(bench.storage.read(path), path)
        if blocks and blocks[0].records == 1000:
            found[path] = (schema.encode(), codec, blocks)
    assert len(found) > 1
    assert len({blocks[0] for _, _, blocks in found.values()}) == 1
    report = look(bench.table, sample=0)
    assert report.healthy
    assert report.checked["entries"] >= 1000 * len(found)
    for path, (schema, codec, blocks) in found.items():
        whole = bench.storage.read(path)
        bench.storage.write(
            path, encode_file(schema, codec, [blocks[0]._replace(records=999), *blocks[1:]])
        )
        assert ("manifest-broken", path) in {
            (one.code, one.path) for one in look(bench.table, sample=0).findings
        }
        bench.storage.write(path, whole)
    bench.storage.delete("bucket-0/f0-7")
    assert [one.path for one in look(bench.table, sample=0).findings] == ["bucket-0/f0-7"]


def test_what_expires_while_it_is_read_is_no_finding() -> None:
    at = 0
    happened = True
    while happened:
        at += 2
        scene = grown()

        def expire(bench: Bench = scene.bench) -> None:
            bench.committer().commit(bench.request(50, [bench.message("newest")]))
            bench.expire(bench.latest().id - 1)

        watched = Meanwhile(scene.storage, at, expire)
        report = look(scene.bench.table, watched, sample=0)  # type: ignore[arg-type]
        happened = watched.happened
        assert [one for one in report.findings if one.severity == "error"] == []


def test_a_storage_that_fails_raises() -> None:
    scene = grown()
    storage = FaultyStorage(scene.storage, [Fault(at=3, verb="list_files")])
    with pytest.raises(Exception, match="Planned fault"):
        look(scene.bench.table, storage)


def test_lost_snapshots_are_reported() -> None:
    scene = grown()
    for number in scene.bench.snapshots.ids():
        scene.storage.delete(f"snapshot/snapshot-{number}")
    report = look(scene.bench.table)
    assert [(one.severity, one.code) for one in report.findings] == [("error", "snapshots-lost")]
    for stat in scene.storage.list_files("snapshot"):
        scene.storage.delete(stat.path)
    report = look(scene.bench.table)
    assert [(one.severity, one.code) for one in report.findings] == [("warning", "no-snapshot")]


def test_a_snapshot_that_cannot_be_read_makes_the_next_no_bad_merge() -> None:
    scene = grown()
    scene.storage.write("snapshot/snapshot-2", b"")
    codes = {one.code for one in look(scene.bench.table).findings}
    assert "snapshot-broken" in codes
    assert "merge-changed-files" not in codes


def test_a_negative_sample_is_refused() -> None:
    with pytest.raises(InvalidOption, match="sample is -1"):
        look(grown().bench.table, sample=-1)


@pytest.mark.parametrize(
    "key", ["deletion-vectors.enabled", "data-evolution.enabled", "row-tracking.enabled"]
)
def test_an_option_that_says_what_is_checked_is_not_passed_over(key: str) -> None:
    bench = grown().bench
    table = replace(bench.table, options=Options({key: "perhaps"}, location="t"))
    with pytest.raises(InvalidOption, match=f"'{key}' is 'perhaps'"):
        look(table)


def test_index_files_are_looked_for_where_the_table_has_them() -> None:
    bench = Bench(options={"index-file-in-data-file-dir": "true"})
    file = IndexFileMeta(index_type="bitmap", file_name="i", file_size=5, row_count=1)
    bench.storage.write("bucket-0/i", b"index")
    bench.committer().commit(
        bench.request(0, [replace(bench.message("f"), new_index_files=(file,))])
    )
    assert look(bench.table, sample=0).findings == ()
    bench.storage.delete("bucket-0/i")
    assert [(one.code, one.path) for one in look(bench.table, sample=0).findings] == [
        ("index-file-missing", "bucket-0/i")
    ]


def test_a_finding_that_is_worse_for_another_snapshot_is_shown_as_the_worse_one() -> None:
    found = Findings()
    found.warning("c", "what", "p", "later")
    found.error("c", "what", "p", "now")
    found.warning("c", "what", "p", "later")
    assert [(one.severity, one.cure) for one in found.report("t").findings] == [("error", "now")]
