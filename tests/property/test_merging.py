"""Whatever the history and the limits: merging manifests changes nothing that is live, and any row
of commits by any users leaves exactly the files that were published.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.commit.committer import Published
from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from paimon_stream.table.manifest_merge import (
    ManifestAccess,
    MergeLimits,
    full_merge,
    merge_manifests,
    minor_merge,
)
from tests.kits.commits import Bench, data_file
from tests.kits.seeds import examples

History = list[list[tuple[int, bytes]]]
"""Commits: each touches files by number. The first touch adds, the second deletes, later ones do
nothing.
"""

histories = st.lists(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([b"p", b"q", b"r"])), max_size=6),
    max_size=14,
)
limit_sets = st.builds(
    MergeLimits,
    target_size=st.integers(1, 60),
    full_size=st.integers(1, 300),
    min_count=st.integers(1, 6),
)


class Manifests:
    """Manifests in memory, ten bytes for each entry."""

    def __init__(self) -> None:
        self.content: dict[str, list[ManifestEntry]] = {}

    def write(self, entries: Iterable[ManifestEntry]) -> tuple[ManifestFileMeta, ...]:
        kept = list(entries)
        if not kept:
            return ()
        name = f"m{len(self.content)}"
        self.content[name] = kept
        partitions = [entry.partition for entry in kept]
        return (
            ManifestFileMeta(
                file_name=name,
                file_size=10 * len(kept),
                num_added_files=sum(entry.kind is FileKind.ADD for entry in kept),
                num_deleted_files=sum(entry.kind is FileKind.DELETE for entry in kept),
                partition_stats=SimpleStats(
                    min_values=min(partitions), max_values=max(partitions), null_counts=()
                ),
                schema_id=0,
            ),
        )

    def read(self, meta: ManifestFileMeta) -> list[ManifestEntry]:
        return self.content[meta.file_name]

    def join(self, metas: Iterable[ManifestFileMeta]) -> tuple[ManifestFileMeta, ...]:
        return self.write([entry for meta in metas for entry in self.read(meta)])

    @property
    def access(self) -> ManifestAccess:
        return ManifestAccess(
            read=self.read, write=self.write, join=self.join, may_contain=may_contain
        )

    def live(self, metas: Iterable[ManifestFileMeta]) -> list[str]:
        """As readers see it: every ADD that no DELETE names, twice if it is listed twice."""
        entries = [entry for meta in metas for entry in self.read(meta)]
        gone = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
        return sorted(
            f"{e.partition!r}/{e.file.file_name}"
            for e in entries
            if e.kind is FileKind.ADD and e.identity not in gone
        )


def may_contain(stats: SimpleStats, partition: bytes) -> bool:
    return stats.min_values <= partition <= stats.max_values


def manifests(access: Manifests, history: History) -> tuple[ManifestFileMeta, ...]:
    touched: dict[tuple[int, bytes], int] = {}
    metas: list[ManifestFileMeta] = []
    for commit in history:
        entries = []
        for where in commit:
            touched[where] = touched.get(where, 0) + 1
            if touched[where] <= 2:
                kind = FileKind.ADD if touched[where] == 1 else FileKind.DELETE
                number, partition = where
                file = data_file(f"f{number}")
                entries.append(
                    ManifestEntry(
                        kind=kind, partition=partition, bucket=0, total_buckets=-1, file=file
                    )
                )
        metas.extend(access.write(entries))
    return tuple(metas)


@settings(max_examples=examples(80, 3000), deadline=None)
@given(histories, limit_sets)
def test_no_merge_changes_what_is_live(history: History, limits: MergeLimits) -> None:
    access = Manifests()
    metas = manifests(access, history)
    before = access.live(metas)
    minor = minor_merge(metas, limits, access.access)
    full = full_merge(metas, limits, access.access)
    assert access.live(minor) == before
    assert full is None or access.live(full) == before


@settings(max_examples=examples(50, 2000), deadline=None)
@given(histories, limit_sets, st.integers(0, 14))
def test_merging_again_and_again_while_commits_come_in_changes_nothing(
    history: History, limits: MergeLimits, raced: int
) -> None:
    access = Manifests()
    present: tuple[ManifestFileMeta, ...] = ()
    deltas = manifests(access, history)
    for number, delta in enumerate(deltas):
        merged = merge_manifests(present, limits, access.access)
        if number == raced and number + 1 < len(deltas):
            # somebody else's commit comes in between: the merge is put onto the present manifests
            present = (*merged.onto((*present, delta)),)
        else:
            present = (*merged.after, delta)
        assert access.live(present) == access.live(deltas[: number + 1])


@settings(max_examples=examples(12, 400), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sampled_from("xy")), max_size=25
    ),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_table_is_the_sum_of_the_commits(
    commits: list[tuple[str, int, str]], min_count: int, keep_committers: bool
) -> None:
    options = {"bucket": "4", "bucket-key": "id", "manifest.merge-min-count": str(min_count)}
    bench = Bench(options=options, partitioned=True)
    committers = {user: bench.committer() for user in "abc"}
    names, spans = [], {}
    for number, (user, bucket, dt) in enumerate(commits):
        names.append(f"f{number}")
        committer = committers[user] if keep_committers else bench.committer()
        message = bench.message(names[-1], dt=dt, bucket=bucket)
        outcome = committer.commit(bench.request(number, [message], user=user, renumber=True))
        assert isinstance(outcome, Published)
        spans[names[-1]] = 10 * sum((b, d) == (bucket, dt) for _, b, d in commits[:number])
    bench.audit(names, orphans=True)
    assert {e.file.file_name: e.file.min_sequence_number for e in bench.live()} == spans
