"""Says which tables this release compacts (compaction.md RC12.3), plans a compaction of a table's
live files, and finds what carries the units out. Without buckets, the small files of a partition
are packed into units (compaction.md §2.1). In a fixed bucket the order of rows counts, so a unit
has neighbours (§3.1). Plans depend on their input only.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from paimon_stream import options as opt
from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.older_rows import RecordExpiry
from paimon_stream.compact.rewrite import Distributor, KeyedRewriter, Rewriter
from paimon_stream.compact.units import Bucket, KeyedUnit, Unit, WaitingUnit, bucket_of, size_of
from paimon_stream.errors import FormatError, PaimonStreamError, UnsupportedFeature
from paimon_stream.format.entries import HASH, ManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS as VECTORS_INDEX
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.types import TypeRoot
from paimon_stream.options.option import Option
from paimon_stream.read.merged import buckets
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, check_table_kind
from paimon_stream.table.vectors import Vector
from paimon_stream.write.data_file import small_below, target_bytes

_REFUSED: Final[tuple[tuple[Option[bool], bool, str], ...]] = (
    (opt.CLUSTERING_INCREMENTAL, False, "so a compaction has to sort its rows"),
    (opt.CHAIN_TABLE, True, "so deletes have to stay for the partitions that build on them"),
    (opt.LOOKUP_REMOTE_FILES, True, "so a compaction has to keep files for look-ups"),
)
"""Options of tables that are not compacted, and whether they matter only with a primary key."""


def check_compactable(table: Table) -> None:
    """Raises `UnsupportedFeature` for a table that this release does not compact, and what
    `check_table_kind` raises. Nothing is read."""
    for option, only_keyed, why in _REFUSED:
        if table.options.value(option) and (table.schema.primary_keys or not only_keyed):
            key, value = option.key, table.options[option.key]
            text = f"has {key} = {value}, {why}. This release does not. Compact it with Flink or Spark on the JVM."
            raise UnsupportedFeature(text, option=key, value=value).of_table(
                table.location, subject=True
            )
    check_table_kind(table)


def refusal(table: Table) -> UnsupportedFeature | None:
    """Why this release does not compact the table. None if it does."""
    try:
        check_compactable(table)
    except UnsupportedFeature as why:
        return why
    return None


def check_indexes(table: Table, snapshot: Snapshot | None) -> None:
    """Raises `UnsupportedFeature` if the snapshot has an index that would have to follow the
    compacted files, and what reading its index manifest raises.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return
    for one in ManifestStore(table.storage).index_entries(snapshot.index_manifest):
        if one.file.index_type not in (VECTORS_INDEX, HASH):
            text = (
                f"Snapshot {snapshot.id} of {table.location} has an index of type {one.file.index_type} "
                f"({one.file.file_name}), which this release does not know. After a compaction it would name files "
                "that are gone. Compact the table with the engine that made the index, or drop the index there."
            )
            raise UnsupportedFeature(
                text, table=table.location, snapshot=snapshot.id, index=one.file.index_type
            )


_MILLIS_OF_HOUR: Final = 3_600_000
_FULL_LEAST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What decides which files are rewritten. Sizes are bytes. Files below `small` are small.
    Without buckets, so are files of whose rows more than `deleted_share` is deleted.
    """

    target: int
    small: int
    least_files: int
    most_files: int
    open_cost: int
    rewrite_all: bool
    deleted_share: float

    @classmethod
    def of(cls, options: opt.Options) -> "Thresholds":
        """The thresholds of an append table. Raises `InvalidOption`."""
        target = target_bytes(options, keyed=False)
        return cls(
            target=target,
            small=small_below(target, options),
            least_files=max(2, options.value(opt.COMPACTION_MIN_FILES)),
            most_files=options.value(opt.COMPACTION_FILE_LIMIT),
            open_cost=options.value(opt.COMPACTION_OPEN_FILE_COST),
            rewrite_all=options.value(opt.COMPACTION_REWRITE_ALL),
            deleted_share=options.value(opt.COMPACTION_DELETE_RATIO),
        )


def plan_append(
    files: Iterable[ManifestEntry],
    limits: Thresholds,
    vectors: Mapping[str, Vector] | None = None,
    *,
    full: bool,
) -> list[Unit]:
    """The units of one call, at most one for each fixed bucket. `files` are live files in the order
    of the manifests, `vectors` their deletion vectors by name. `full` matters for fixed buckets
    only.
    """
    vectors = vectors or {}
    found: dict[Bucket, list[ManifestEntry]] = {}
    candidates = 0
    for entry in files:
        if entry.total_buckets <= 0:
            if not _is_candidate(entry, vectors, limits) or candidates == limits.most_files:
                continue
            candidates += 1
        found.setdefault(bucket_of(entry), []).append(entry)
    units: list[Unit] = []
    for (_, _, total), entries in found.items():
        if total <= 0:
            units += _packed([one for one in entries if one.file.file_name not in vectors], limits)
            units += _with_vectors(
                [one for one in entries if one.file.file_name in vectors], vectors, limits
            )
        else:
            chosen = _full(entries, limits, vectors) if full else _minor(entries, limits)
            units += [Unit(tuple(chosen))] if chosen else []
    return units


def _is_candidate(entry: ManifestEntry, vectors: Mapping[str, Vector], limits: Thresholds) -> bool:
    if entry.file.file_size < limits.small or entry.file.file_name not in vectors:
        return entry.file.file_size < limits.small
    deleted = vectors[entry.file.file_name][1].cardinality
    return deleted is None or deleted > entry.file.row_count * limits.deleted_share


def _packed(files: Sequence[ManifestEntry], limits: Thresholds) -> list[Unit]:
    """Packs files, the smallest first. Within a unit they are read in the order in which they were
    written (RC2.1).
    """
    ascending = sorted(
        files, key=lambda one: (one.file.file_size, one.file.min_sequence_number, *_age(one))
    )
    *bins, last = _bins([[one] for one in ascending], limits)
    return [
        Unit(tuple(sorted(one, key=_age)))
        for one in (*bins, *([last] if len(last) >= limits.least_files else []))
    ]


def _with_vectors(
    files: Iterable[ManifestEntry], vectors: Mapping[str, Vector], limits: Thresholds
) -> list[Unit]:
    """Packs files with deletion vectors. Files that share an index file stay together, and even one
    file is enough.
    """
    groups: dict[str, list[ManifestEntry]] = {}
    for one in files:
        groups.setdefault(vectors[one.file.file_name][0].file.file_name, []).append(one)
    bins = _bins(
        sorted(groups.values(), key=lambda some: (size_of(some), min(map(_age, some)))), limits
    )
    return [Unit(tuple(sorted(one, key=_age))) for one in bins if one]


def _bins(
    groups: Iterable[Sequence[ManifestEntry]], limits: Thresholds
) -> list[list[ManifestEntry]]:
    """Fills bins with the groups, in their order. The last bin may be empty."""
    bins: list[list[ManifestEntry]] = [[]]
    weight = 0
    for group in groups:
        bins[-1] += group
        weight += size_of(group) + limits.open_cost * len(group)
        if len(bins[-1]) > 1 and weight >= 2 * limits.target:
            bins.append([])
            weight = 0
    return bins


def _minor(files: Sequence[ManifestEntry], limits: Thresholds) -> list[ManifestEntry]:
    """The first neighbours that are enough files. The oldest leave the window if it becomes too
    large.
    """
    window: list[list[ManifestEntry]] = []
    for block in _blocks(files):
        window.append(block)
        flat = list(chain.from_iterable(window))
        if len(flat) >= limits.least_files:
            return flat
        if size_of(flat) >= 2 * limits.target:
            window.pop(0)
    return []


def _full(
    files: Sequence[ManifestEntry], limits: Thresholds, vectors: Mapping[str, Vector]
) -> list[ManifestEntry]:
    """All files behind the leading large ones, if most of these are small or any has a deletion
    vector.
    """
    blocks = _blocks(files)
    if limits.rewrite_all:
        return list(chain.from_iterable(blocks))

    def marked(some: Iterable[ManifestEntry]) -> bool:
        return any(one.file.file_name in vectors for one in some)

    while (
        blocks
        and not marked(blocks[0])
        and all(one.file.file_size >= limits.small for one in blocks[0])
    ):
        blocks.pop(0)
    left = list(chain.from_iterable(blocks))
    small = sum(one.file.file_size < limits.small for one in left)
    return left if marked(left) or (len(left) >= _FULL_LEAST and small > len(left) - small) else []


def _blocks(files: Sequence[ManifestEntry]) -> list[list[ManifestEntry]]:
    """The files in the order of their sequence numbers. Files whose numbers overlap are one block,
    which is taken as a whole: an earlier compaction of Java may have left such files (RC3.3).
    Rewritten, a block needs as many numbers as it has rows, so it also takes the files that begin
    within these.
    """
    blocks: list[list[ManifestEntry]] = []
    highest = needed = -1
    for entry in sorted(files, key=lambda one: one.file.min_sequence_number):
        file = entry.file
        if blocks and file.min_sequence_number <= max(highest, needed):
            blocks[-1].append(entry)
        else:
            blocks.append([entry])
            needed = file.min_sequence_number - 1
        highest = max(highest, file.max_sequence_number)
        needed += file.row_count
    return blocks


def _age(entry: ManifestEntry) -> tuple[int, str]:
    return entry.file.creation_time or 0, entry.file.file_name


def plan_units(
    scan: Scan,
    runtime: Runtime,
    wrong: Callable[[PaimonStreamError, ManifestEntry], object],
    *,
    full: bool,
    early: bool = True,
    only: Collection[Bucket] | None = None,
    waiting: bool = False,
) -> tuple[Thresholds | KeyedThresholds, list[Unit]]:
    """The units of the scan's files; with `only`, just those of these buckets. Without `early`,
    `compaction.optimization-interval` has not passed. With `waiting`, rows that wait for their
    buckets come first: if there are any, there are no other units. Where keys or levels are wrong,
    or waiting rows may be older than those in buckets, there is none, and `wrong` is called with
    the error and a file of the bucket. Raises as `check_indexes`.
    """
    check_indexes(scan.table, scan.snapshot)
    options, spec = scan.table.options, scan.merge
    if spec is None:
        limits = Thresholds.of(options)
        units = plan_append(scan.files, limits, scan.vectors, full=full)
        return limits, [one for one in units if only is None or one.bucket in only]
    thresholds, types = (
        keyed_limits(scan, runtime, early=early),
        [scan.schema.field(name).type for name in spec.keys],
    )
    found: list[Unit] = []
    if waiting and (units := _waiting(scan, only, wrong)):
        return thresholds, units
    for files in buckets(
        one for one in scan.files if one.bucket >= 0 and (only is None or bucket_of(one) in only)
    ):
        try:
            unit = next_unit(files, spec, types, thresholds, full=full, vectors=scan.vectors)
        except FormatError as why:
            wrong(why, files[0])
            continue
        found += [] if unit is None else [unit]
    return thresholds, found


def _waiting(
    scan: Scan,
    only: Collection[Bucket] | None,
    wrong: Callable[[PaimonStreamError, ManifestEntry], object],
) -> list[Unit]:
    """A unit for the files that wait in each partition, in the order of their times (table-kinds.md
    §4.3). In a table that is not postponed any more, writers have put rows into buckets meanwhile,
    which these rows must not replace.
    """
    units: list[Unit] = []
    default = max(scan.table.options.value(opt.BUCKET), 0) or scan.table.options.value(
        opt.POSTPONE_BUCKETS
    )
    for files in buckets(
        one for one in scan.files if one.bucket < 0 and (only is None or bucket_of(one) in only)
    ):
        real = [
            one for one in scan.files if one.bucket >= 0 and one.partition == files[0].partition
        ]
        if (
            real
            and not scan.table.is_postponed
            and max(map(_age, real))[0] >= min(map(_age, files))[0]
        ):
            text = "The rows that wait in it may be older than rows in buckets of its partition, and would replace them"
            cure = "If they are newer, set bucket = -2, compact, and set it back. Else overwrite the partition."
            wrong(UnsupportedFeature(f"{text}. {cure}"), files[0])
            continue
        count = max((one.total_buckets for one in real), default=default)
        first = max((one.file.max_sequence_number for one in real), default=-1) + 1
        units.append(WaitingUnit(tuple(sorted(files, key=_age)), buckets=count, first=first))
    return units


def keyed_limits(scan: Scan, runtime: Runtime, *, early: bool = True) -> KeyedThresholds:
    """The thresholds of a table with a primary key, now. See `plan_units`. Raises
    `InvalidOption`.
    """
    options, spec = scan.table.options, scan.merge
    assert spec is not None
    hour = runtime.clock.local_millis() // _MILLIS_OF_HOUR % 24
    sums = [name for name, rule in spec.rules.items() if rule.function == "sum"]
    # The sum of a part may be too large for the type although that of all is not.
    decimals = any(scan.schema.field(name).type.root is TypeRoot.DECIMAL for name in sums)
    schemas, now = SchemaStore(scan.table.storage), runtime.clock.now_millis()
    expiry = RecordExpiry.of(scan.schema, options, schemas, now)
    names = scan.schema.field_names
    limits = KeyedThresholds.of(
        spec, options, hour, columns=names, as_whole=decimals, expiry=expiry
    )
    return limits if early else replace(limits, always_full=False)


def rewriter_of(
    scan: Scan,
    limits: Thresholds | KeyedThresholds,
    units: Sequence[Unit],
    runtime: Runtime,
    progress: Progress,
) -> Rewriter:
    """What carries out these units. Raises `ConfigError`s."""
    if isinstance(limits, Thresholds):
        return Rewriter(scan, runtime, progress, units)
    if any(isinstance(one, WaitingUnit) for one in units):
        return Distributor(scan, runtime, progress, units)
    keyed = [one for one in units if isinstance(one, KeyedUnit)]
    return KeyedRewriter(scan, runtime, progress, keyed, limits)
