"""Merges small manifests in every commit, as Java does: a *full* merge if it is due, else a *minor* one (semantics.md
§4, with R4.2 for retries; docs/architecture.md, "The cost of a commit").

Invariants: the live files stay the same. A minor merge keeps the order, because later deletes depend on it. No file is
changed; only new manifests are written. A manifest that need not change is passed on unchanged."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from paimon_stream.options import MANIFEST_FULL_COMPACTION_SIZE, MANIFEST_MERGE_MIN_COUNT, MANIFEST_TARGET_SIZE, Options
from paimon_stream.table.live import merge_entries

Metas = tuple[ManifestFileMeta, ...]
ReadManifest = Callable[[ManifestFileMeta], Sequence[ManifestEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """When manifests are merged: the size of a full manifest in bytes, the bytes of changed manifests that
    trigger a full merge, and the number of small manifests that triggers a minor merge."""

    target_size: int
    full_size: int
    min_count: int

    @classmethod
    def of(cls, options: Options) -> "MergeLimits":
        """The limits in the table's options. Raises `InvalidOption`."""
        return cls(
            target_size=options.value(MANIFEST_TARGET_SIZE),
            full_size=options.value(MANIFEST_FULL_COMPACTION_SIZE),
            min_count=options.value(MANIFEST_MERGE_MIN_COUNT),
        )

    def must_change(self, meta: ManifestFileMeta) -> bool:
        """Whether a full merge always rewrites this manifest, because it has deletes or is small."""
        return meta.num_deleted_files > 0 or meta.file_size < self.target_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The manifests `before` a merge, and those `after` it."""

    before: Metas
    after: Metas

    @property
    def written(self) -> frozenset[str]:
        """The names of the manifests that the merge wrote."""
        return frozenset(m.file_name for m in self.after) - {m.file_name for m in self.before}

    @property
    def count(self) -> int:
        """How many manifests were merged into others."""
        return len({m.file_name for m in self.before} - {m.file_name for m in self.after})

    def onto(self, present: Metas) -> Metas:
        """The present manifests, with those that this merge was made from replaced by its result. If they are
        no longer next to each other, the present manifests unchanged."""
        if self.after == self.before:
            return present
        names = [meta.file_name for meta in present]
        wanted = [meta.file_name for meta in self.before]
        for start in range(len(names) - len(wanted) + 1):
            if names[start : start + len(wanted)] == wanted:
                return (*present[:start], *self.after, *present[start + len(wanted) :])
        return present


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestAccess:
    """How manifests are read and written. `write` and `join` start a new manifest at the target size and make none
    without entries. `join` copies whole manifests without deletes and does not decode them. `may_contain` decides from
    a manifest's partition statistics whether it can have entries of a partition."""

    read: ReadManifest
    write: Callable[[Iterable[ManifestEntry]], Metas]
    join: Callable[[Metas], Metas]
    may_contain: Callable[[SimpleStats, bytes], bool]


def merge_manifests(metas: Metas, limits: "MergeLimits", access: ManifestAccess) -> Merged:
    """Merges the manifests if a merge is due, else returns them unchanged. Raises what `access` raises, and
    `DeletedFiles` if decoded manifests list a file twice. The caller then removes what was written."""
    after = full_merge(metas, limits, access)
    if after is None:
        after = minor_merge(metas, limits, access)
    return Merged(before=metas, after=after)


def minor_groups(metas: Metas, limits: "MergeLimits") -> list[Metas]:
    """How a minor merge groups the manifests, in order. A group of one is left unchanged."""
    groups: list[Metas] = []
    open_group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        open_group.append(meta)
        size += meta.file_size
        if size >= limits.target_size:
            groups.append(tuple(open_group))
            open_group, size = [], 0
    if len(open_group) >= limits.min_count:
        groups.append(tuple(open_group))
    else:
        groups.extend((meta,) for meta in open_group)
    return groups


def minor_merge(metas: Metas, limits: "MergeLimits", access: ManifestAccess) -> Metas:
    """Joins neighbours (semantics.md §4.1). A delete whose add is not in the same group is kept."""
    result: list[ManifestFileMeta] = []
    for group in minor_groups(metas, limits):
        if len(group) == 1:
            result.extend(group)
        elif not any(meta.num_deleted_files for meta in group):
            result.extend(access.join(group))  # nothing can cancel out
        else:
            result.extend(access.write(merge_entries(chain.from_iterable(map(access.read, group))).values()))
    return tuple(result)


def full_merge(metas: Metas, limits: "MergeLimits", access: ManifestAccess) -> Metas | None:
    """Rewrites changed manifests without deletes (semantics.md §4.2); None if no full merge is due."""
    if sum(meta.file_size for meta in metas if limits.must_change(meta)) < limits.full_size:
        return None
    deleted = {
        entry.identity
        for meta in metas
        if meta.num_deleted_files > 0
        for entry in access.read(meta)
        if entry.kind is FileKind.DELETE
    }
    partitions = {identity.partition for identity in deleted}
    kept: list[ManifestFileMeta] = []
    rest: list[ManifestFileMeta] = []
    for meta in metas:
        touched = limits.must_change(meta) or any(
            access.may_contain(meta.partition_stats, partition) for partition in partitions
        )
        (rest if touched else kept).append(meta)
    if len(rest) <= 1:
        return None
    if not any(meta.num_deleted_files for meta in rest):
        return (*kept, *access.join(tuple(rest)))

    def survivors() -> Iterator[ManifestEntry]:
        """The entries to write again, one manifest in memory at a time. Manifests that need not change go to `kept`."""
        for meta in rest:
            entries = access.read(meta)
            live = [e for e in entries if e.kind is FileKind.ADD and e.identity not in deleted]
            if len(live) == len(entries) and not limits.must_change(meta):
                kept.append(meta)
            else:
                yield from live

    written = access.write(survivors())  # `kept` grows meanwhile
    return (*kept, *written)
