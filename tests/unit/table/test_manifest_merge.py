"""Merging manifests follows semantics.md §4, and never changes what is live."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from paimon_stream.errors import DeletedFiles
from paimon_stream.format.entries import (
    EMPTY_STATS,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from paimon_stream.table.manifest_merge import (
    ManifestAccess,
    Merged,
    MergeLimits,
    full_merge,
    merge_manifests,
    minor_groups,
    minor_merge,
)
from tests.kits.commits import data_file

LIMITS = MergeLimits(target_size=100, full_size=1000, min_count=3)


class Manifests:
    """Manifests in memory. A manifest is as many bytes as given, or ten for each entry."""

    def __init__(self) -> None:
        self.content: dict[str, list[ManifestEntry]] = {}
        self.reads: list[str] = []
        self.made = 0

    def put(
        self, *entries: ManifestEntry, size: int = 10, partition: bytes = b"p"
    ) -> ManifestFileMeta:
        name = f"m{len(self.content)}"
        self.content[name] = list(entries)
        return self.meta(name, size, partition)

    def meta(self, name: str, size: int, partition: bytes) -> ManifestFileMeta:
        entries = self.content[name]
        return ManifestFileMeta(
            file_name=name,
            file_size=size,
            num_added_files=sum(e.kind is FileKind.ADD for e in entries),
            num_deleted_files=sum(e.kind is FileKind.DELETE for e in entries),
            partition_stats=SimpleStats(
                min_values=partition, max_values=partition, null_counts=(0,)
            ),
            schema_id=0,
        )

    def read(self, meta: ManifestFileMeta) -> list[ManifestEntry]:
        self.reads.append(meta.file_name)
        return self.content[meta.file_name]

    def write(self, entries: Iterable[ManifestEntry]) -> tuple[ManifestFileMeta, ...]:
        kept = list(entries)
        if not kept:
            return ()
        self.made += 1
        self.content[f"new{self.made}"] = kept
        return (self.meta(f"new{self.made}", 10 * len(kept), b"p"),)

    def join(self, metas: Iterable[ManifestFileMeta]) -> tuple[ManifestFileMeta, ...]:
        given = list(metas)
        assert all(not meta.num_deleted_files for meta in given), "deletes must be looked into"
        return self.write([e for meta in given for e in self.content[meta.file_name]])

    @property
    def access(self) -> ManifestAccess:
        return ManifestAccess(
            read=self.read, write=self.write, join=self.join, may_contain=may_contain
        )

    def names(self, metas: Iterable[ManifestFileMeta]) -> list[list[str]]:
        signs = {FileKind.ADD: "+", FileKind.DELETE: "-"}
        return [
            [signs[e.kind] + e.file.file_name for e in self.content[meta.file_name]]
            for meta in metas
        ]


def entry(name: str, kind: FileKind = FileKind.ADD, partition: bytes = b"p") -> ManifestEntry:
    return ManifestEntry(
        kind=kind, partition=partition, bucket=0, total_buckets=-1, file=data_file(name)
    )


def gone(name: str, partition: bytes = b"p") -> ManifestEntry:
    return entry(name, FileKind.DELETE, partition)


def may_contain(stats: SimpleStats, partition: bytes) -> bool:
    return stats.min_values <= partition <= stats.max_values


def sizes(groups: list[tuple[ManifestFileMeta, ...]]) -> list[list[int]]:
    return [[meta.file_size for meta in group] for group in groups]


def metas(*given: int) -> tuple[ManifestFileMeta, ...]:
    return tuple(
        ManifestFileMeta(
            file_name=f"m{n}",
            file_size=size,
            num_added_files=1,
            num_deleted_files=0,
            partition_stats=EMPTY_STATS,
            schema_id=0,
        )
        for n, size in enumerate(given)
    )


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        ([], []),
        ([10, 10], [[10], [10]]),
        ([10, 10, 10], [[10, 10, 10]]),
        ([100], [[100]]),
        ([100, 10, 10], [[100], [10], [10]]),
        ([10, 100, 10], [[10, 100], [10]]),
        ([60, 60, 100, 10], [[60, 60], [100], [10]]),
        ([99, 1, 10, 10, 10], [[99, 1], [10, 10, 10]]),
    ],
)
def test_a_minor_merge_joins_neighbours_up_to_the_target_and_the_rest_from_the_minimum_on(
    given: list[int], groups: list[list[int]]
) -> None:
    assert sizes(minor_groups(metas(*given), LIMITS)) == groups


def test_a_minor_merge_keeps_the_order_and_passes_single_manifests_on() -> None:
    access = Manifests()
    big = access.put(entry("a"), size=100)
    small = [access.put(entry(name)) for name in "bcd"]
    result = minor_merge((big, *small), LIMITS, access.access)
    assert result[0] == big
    assert access.names(result) == [["+a"], ["+b", "+c", "+d"]]
    assert access.reads == [], "manifests without deletes are not decoded"


def test_a_minor_merge_keeps_a_delete_whose_add_lies_elsewhere() -> None:
    access = Manifests()
    given = (access.put(gone("x"), entry("a")), access.put(entry("b")), access.put(gone("b")))
    result = minor_merge(given, LIMITS, access.access)
    assert access.names(result) == [["-x", "+a"]]


def test_a_minor_merge_of_what_cancels_out_writes_nothing() -> None:
    access = Manifests()
    given = (access.put(entry("a")), access.put(gone("a")), access.put())
    assert minor_merge(given, LIMITS, access.access) == ()


def test_a_file_listed_twice_is_refused_by_a_minor_merge_that_looks() -> None:
    access = Manifests()
    given = (*(access.put(entry("a")) for _ in range(2)), access.put(gone("b")))
    with pytest.raises(DeletedFiles, match="a"):
        minor_merge(given, LIMITS, access.access)


def full(
    access: Manifests, given: tuple[ManifestFileMeta, ...]
) -> tuple[ManifestFileMeta, ...] | None:
    return full_merge(given, LIMITS, access.access)


def test_a_full_merge_declines_below_its_threshold() -> None:
    access = Manifests()
    given = (access.put(entry("a"), size=900), access.put(gone("a"), size=500), access.put(size=99))
    assert full(access, given) is None
    assert access.reads == []


def test_only_small_manifests_and_those_with_deletes_count_for_the_threshold() -> None:
    access = Manifests()
    given = (
        access.put(entry("a"), size=5000),
        access.put(gone("a"), size=901),
        access.put(size=99),
    )
    assert full(access, given) == ()


def test_a_full_merge_declines_where_only_one_manifest_would_be_rewritten() -> None:
    access = Manifests()
    given = (
        access.put(entry("a", partition=b"q"), size=5000, partition=b"q"),
        access.put(entry("b"), gone("x"), size=1000),
    )
    assert full(access, given) is None


def test_a_full_merge_drops_all_deletes_and_what_they_delete_whatever_the_order() -> None:
    access = Manifests()
    given = (
        access.put(entry("a"), gone("c"), size=500),
        access.put(entry("b"), entry("c"), size=500),
        access.put(gone("a"), gone("elsewhere"), size=500),
    )
    result = full(access, given)
    assert result is not None
    assert access.names(result) == [["+b"]]


def test_a_full_merge_keeps_big_manifests_of_other_partitions_unread() -> None:
    access = Manifests()
    other = access.put(entry("q", partition=b"q"), size=5000, partition=b"q")
    result = full(
        access, (other, access.put(entry("a"), size=5000), access.put(gone("a"), size=1000))
    )
    assert result == (other,)
    assert other.file_name not in access.reads


def test_a_full_merge_keeps_a_big_manifest_of_which_nothing_is_dropped() -> None:
    access = Manifests()
    same = access.put(entry("keep"), size=5000)
    changed = access.put(entry("a"), entry("b"), size=5000)
    result = full(access, (same, changed, access.put(gone("a"), size=1000)))
    assert result is not None
    assert result[0] == same
    assert access.names(result) == [["+keep"], ["+b"]]


def test_without_deletes_a_full_merge_keeps_every_big_manifest() -> None:
    access = Manifests()
    big = access.put(entry("a"), size=5000)
    small = [access.put(entry(f"s{n}"), size=99) for n in range(11)]
    result = full(access, (big, *small))
    assert result is not None
    assert result[0] == big
    assert access.names(result)[1] == [f"+s{n}" for n in range(11)]
    assert access.reads == []


def test_merging_prefers_full_and_falls_back_to_minor() -> None:
    access = Manifests()
    given = tuple(access.put(entry(name)) for name in "abc")
    merged = merge_manifests(given, LIMITS, access.access)
    assert access.names(merged.after) == [["+a", "+b", "+c"]]
    assert merged.written == {"new1"}


def test_a_retry_puts_the_earlier_merge_in_the_place_of_what_it_was_made_from() -> None:
    one, two, three, four, five = metas(1, 2, 3, 4, 5)
    merged = Merged(before=(two, three), after=(five,))
    assert merged.onto((one, two, three, four)) == (one, five, four)
    assert merged.onto((two, three)) == (five,)


def test_a_retry_merges_nothing_where_its_manifests_no_longer_lie_side_by_side() -> None:
    one, two, three, four, five = metas(1, 2, 3, 4, 5)
    merged = Merged(before=(two, three), after=(five,))
    assert merged.onto((two, one, three)) == (two, one, three)
    assert merged.onto((three, four)) == (three, four)
    assert merged.onto(()) == ()


def test_a_retry_after_a_merge_that_did_nothing_takes_the_manifests_as_they_are() -> None:
    one, two, three = metas(1, 2, 3)
    assert Merged(before=(one,), after=(one,)).onto((two, three)) == (two, three)
    assert Merged(before=(), after=()).onto((one,)) == (one,)


def test_a_merge_in_which_everything_cancels_out_takes_its_manifests_away() -> None:
    one, two, three = metas(1, 2, 3)
    assert Merged(before=(one, two), after=()).onto((one, two, three)) == (three,)
    assert Merged(before=(one, two), after=()).onto((one, two)) == ()
