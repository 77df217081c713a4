"""The auditor of figures sees each change of what a snapshot says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.format.manifest_avro import decode_manifest_list, encode_manifest_list
from paimon_stream.table.layout import manifest_path, snapshot_path
from tests.kits.commits import Bench
from tests.simulation import rules
from tests.simulation.figures import check_index_files, check_snapshot
from tests.simulation.foreign import records_of
from tests.simulation.state import Violation


@pytest.fixture(scope="module")
def bench() -> Bench:
    """A table with two snapshots. The second one adds two files, a changelog and an index file."""
    bench = Bench(partitioned=True)
    bench.committer().commit(bench.request(0, [bench.message("a", dt="x")]))
    message = replace(
        bench.message("b", rows=7, dt="y"),
        changelog_files=(bench.put("c", dt="y", rows=5),),
        new_index_files=(replace(bench.put_index("i"), file_size=5, row_count=1),),
    )
    bench.committer().commit(bench.request(1, [message, bench.message("d", rows=2, dt="x")]))
    return bench


def files_of(bench: Bench) -> dict[str, bytes]:
    names = (one.name for one in bench.storage.list_files("manifest"))
    return {name: bench.storage.read(manifest_path(name)) for name in names}


def content_of(bench: Bench, **changed: Any) -> bytes:
    node = json.loads(bench.storage.read(snapshot_path(2)))
    assert node.keys() >= changed.keys()
    return json.dumps(node | changed).encode()


def test_a_snapshot_that_says_what_its_entries_say_is_accepted(bench: Bench) -> None:
    node = check_snapshot(content_of(bench), files_of(bench))
    counts = "totalRecordCount", "deltaRecordCount", "changelogRecordCount"
    assert [node[key] for key in counts] == [19, 9, 5]
    check_index_files(node, files_of(bench), {"i": bytes(5)})


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("totalRecordCount", 18, rules.COUNTS),
        ("deltaRecordCount", 19, rules.COUNTS),
        ("changelogRecordCount", None, rules.COUNTS),
        ("changelogRecordCount", 4, rules.COUNTS),
        ("baseManifestListSize", 1, rules.SIZES),
        ("deltaManifestListSize", None, rules.SIZES),
        ("changelogManifestListSize", 0, rules.SIZES),
        ("changelogManifestList", None, rules.SIZES),
    ],
)
def test_another_count_or_size_in_a_snapshot_is_seen(
    bench: Bench, key: str, value: int | None, rule: str
) -> None:
    with pytest.raises(Violation) as seen:
        check_snapshot(content_of(bench, **{key: value}), files_of(bench))
    assert seen.value.rule == rule


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "file_size": (lambda size: size + 1, rules.SIZES),
    "num_added_files": (lambda files: files - 1, rules.COUNTS),
    "num_deleted_files": (lambda files: files + 1, rules.COUNTS),
    "schema_id": (lambda schema_id: schema_id + 1, rules.STATISTICS),
    "min_bucket": (lambda bucket: bucket + 1, rules.STATISTICS),
    "max_level": (lambda level: None, rules.STATISTICS),
    "min_row_id": (lambda row_id: 0, rules.STATISTICS),
    "partition_stats": (
        lambda stats: stats._replace(min_values=stats.max_values),
        rules.STATISTICS,
    ),
}


@pytest.mark.parametrize("field", CHANGES)
def test_another_value_in_a_manifest_list_is_seen(bench: Bench, field: str) -> None:
    change, rule = CHANGES[field]
    files = files_of(bench)
    name = bench.latest().delta_manifest_list
    metas = [
        replace(one, **{field: change(getattr(one, field))})
        for one in decode_manifest_list(files[name], name)
    ]
    files[name] = encode_manifest_list(metas, compression="zstd", level=1)
    content = content_of(bench, deltaManifestListSize=len(files[name]))
    with pytest.raises(Violation) as seen:
        check_snapshot(content, files)
    assert seen.value.rule == rule


@pytest.mark.parametrize(("content", "rule"), [(bytes(6), rules.SIZES), (b"", rules.SIZES)])
def test_an_index_file_of_another_size_is_seen(bench: Bench, content: bytes, rule: str) -> None:
    node = json.loads(content_of(bench))
    with pytest.raises(Violation) as seen:
        check_index_files(node, files_of(bench), {"i": content})
    assert seen.value.rule == rule


def test_both_decoders_read_the_same_entries(bench: Bench) -> None:
    names = [
        record["_FILE"]["_FILE_NAME"]
        for name, content in files_of(bench).items()
        if name.startswith("manifest-") and "list" not in name
        for record in records_of(content)
    ]
    assert sorted(names) == ["a", "b", "c", "d"]
