"""Says which tables this release compacts (compaction.md RC12.3), plans a compaction of a table's
live files, and chooses the rewriter that carries the units out.

Without buckets, the small files of a partition are packed into units (compaction.md §2.1). In a
fixed bucket, the order of rows matters, so the files of a unit are neighbours (§3.1). A plan
depends only on its input.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile
from typing import Any, Final, NamedTuple

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
from paimon_stream.format.unknown_fields import names_of
from paimon_stream.merge.spec import MergeSpec
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


class _RefusedOption(NamedTuple):
    """An option of tables that are not compacted.

    Attributes:
        option: the option.
        only_keyed: whether the option matters only with a primary key.
        duty: what a compaction of such a table would have to do, for the message.
    """

    option: Option[Any]
    only_keyed: bool
    duty: str


_INDEXED: Final = "so a compaction has to build the index of its files"
_REFUSED: Final = (
    _RefusedOption(opt.CLUSTERING_INCREMENTAL, False, "so a compaction has to sort its rows"),
    _RefusedOption(
        opt.DATA_EVOLUTION, False, "so a compaction has to join files that hold columns of rows"
    ),
    _RefusedOption(
        opt.CHAIN_TABLE, True, "so deletes have to stay for the partitions that build on them"
    ),
    _RefusedOption(opt.LOOKUP_REMOTE_FILES, True, "so a compaction has to keep files for look-ups"),
    _RefusedOption(opt.PK_BITMAP_INDEX, True, _INDEXED),
    _RefusedOption(opt.PK_BTREE_INDEX, True, _INDEXED),
    _RefusedOption(opt.PK_FULL_TEXT_INDEX, True, _INDEXED),
    _RefusedOption(opt.PK_MULTIVALUE_INDEX, True, _INDEXED),
    _RefusedOption(opt.PK_VECTOR_INDEX, True, _INDEXED),
)


def check_compactable(table: Table) -> None:
    """Raises `UnsupportedFeature` for a table that this release does not compact, and what
    `check_table_kind` raises. No file is read.
    """
    for option, only_keyed, duty in _REFUSED:
        matters = bool(table.schema.primary_keys) or not only_keyed
        if matters and table.options.value(option):
            key = option.key
            value = table.options[key]
            raise UnsupportedFeature(
                f"has {key} = {value}, {duty}. This release does not. Compact it with Flink or Spark on the JVM.",
                option=key,
                value=value,
            ).of_table(table.location, subject=True)
    check_table_kind(table)


def refusal(table: Table) -> UnsupportedFeature | None:
    """The reason why this release does not compact the table; None if it does."""
    try:
        check_compactable(table)
    except UnsupportedFeature as error:
        return error
    return None


def check_indexes(table: Table, snapshot: Snapshot | None) -> None:
    """Raises `UnsupportedFeature` if the snapshot has an index that would have to be changed
    together with the compacted files. Also raises the errors of reading the index manifest.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return
    for entry in ManifestStore(table.storage).index_entries(snapshot.index_manifest):
        if entry.file.index_type not in (VECTORS_INDEX, HASH):
            raise UnsupportedFeature(
                f"Snapshot {snapshot.id} of {table.location} has an index of type {entry.file.index_type} "
                f"({entry.file.file_name}), which this release does not know. After a compaction it would name files "
                "that are gone. Compact the table with the engine that made the index, or drop the index there.",
                table=table.location,
                snapshot=snapshot.id,
                index=entry.file.index_type,
            )


_MILLIS_OF_HOUR: Final = 3_600_000
_FULL_LEAST: Final = 3
"""The fewest files of a fixed bucket that a full compaction rewrites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds that decide which files of an append table are rewritten.

    Attributes:
        target: the size of a new file in bytes.
        small: a file with fewer bytes than this is small.
        least_files: the least number of files in a unit.
        most_files: in a table without buckets, the largest number of files that one run rewrites.
        open_cost: the cost of opening a file, expressed in bytes, for packing files into units.
        rewrite_all: whether large files of a fixed bucket are rewritten, too.
        deleted_share: in a table without buckets, a file is also rewritten if more than this share
            of its rows is deleted.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedUnits:
    """The result of `plan_units`.

    Attributes:
        limits: the thresholds of the table.
        units: the units that are rewritten.
        left_as_is: the units that are not rewritten, because the entries of some of their files
            have unknown fields (format.md §1.5). The value of such a field may be wrong for the new
            files.
    """

    limits: Thresholds | KeyedThresholds
    units: list[Unit] = field(default_factory=list)
    left_as_is: list[Unit] = field(default_factory=list)

    def add(self, units: Iterable[Unit]) -> None:
        """Adds each unit either to the units that are rewritten, or to the units that are left as
        they are.
        """
        for unit in units:
            if any(entry.file.unknown for entry in unit.known):
                self.left_as_is.append(unit)
            else:
                self.units.append(unit)


def why_left_as_is(unit: Unit) -> str:
    """Why a unit of `PlannedUnits.left_as_is` is not rewritten, and what the user can do
    about it.
    """
    files = [entry.file for entry in unit.known if entry.file.unknown]
    names = names_of(tuple(field for file in files for field in file.unknown))
    return (
        f"The manifests say of {len(files)} of its files what this release does not know ({names}), and what it would "
        "lose. Compact them with the engine that wrote them, or with a newer release of paimon-stream."
    )


def plan_append(
    files: Iterable[ManifestEntry],
    limits: Thresholds,
    vectors: Mapping[str, Vector] | None = None,
    *,
    full: bool,
) -> list[Unit]:
    """The units of one call, at most one for each fixed bucket.

    Args:
        files: the live files, in the order of the manifests.
        limits: the thresholds of the table.
        vectors: the deletion vectors of the files, by the name of the file.
        full: whether a fixed bucket is compacted as a whole. This has no effect on a table without
            buckets.
    """
    vectors = vectors or {}
    by_bucket: dict[Bucket, list[ManifestEntry]] = {}
    candidates = 0
    for entry in files:
        has_bucket = entry.total_buckets > 0
        if not has_bucket:
            if candidates == limits.most_files or not _is_candidate(entry, vectors, limits):
                continue
            candidates += 1
        by_bucket.setdefault(bucket_of(entry), []).append(entry)
    units: list[Unit] = []
    for bucket, entries in by_bucket.items():
        if bucket.total_buckets <= 0:
            units += _units_without_buckets(entries, limits, vectors)
            continue
        chosen = _full(entries, limits, vectors) if full else _minor(entries, limits)
        if chosen:
            units.append(Unit(tuple(chosen)))
    return units


def _units_without_buckets(
    files: Iterable[ManifestEntry], limits: Thresholds, vectors: Mapping[str, Vector]
) -> list[Unit]:
    """The units of a partition without buckets. Files with unknown fields are in a separate unit,
    so that the other files can be rewritten.
    """
    with_unknown: list[ManifestEntry] = []
    with_vector: list[ManifestEntry] = []
    without_vector: list[ManifestEntry] = []
    for entry in files:
        if entry.file.unknown:
            with_unknown.append(entry)
        elif entry.file.file_name in vectors:
            with_vector.append(entry)
        else:
            without_vector.append(entry)
    units: list[Unit] = []
    if with_unknown:
        units.append(Unit(tuple(sorted(with_unknown, key=_age))))
    units += _packed(without_vector, limits)
    units += _packed_with_vectors(with_vector, vectors, limits)
    return units


def _is_candidate(entry: ManifestEntry, vectors: Mapping[str, Vector], limits: Thresholds) -> bool:
    """Whether a file of a table without buckets may be rewritten."""
    if entry.file.file_size < limits.small:
        return True
    if entry.file.file_name not in vectors:
        return False
    _, place = vectors[entry.file.file_name]
    deleted = place.cardinality
    return deleted is None or deleted > entry.file.row_count * limits.deleted_share


def _packed(files: Sequence[ManifestEntry], limits: Thresholds) -> list[Unit]:
    """Packs files into units, the smallest files first. A unit reads its files in the order in
    which they were written (RC2.1). The largest files are left out if they are too few for a unit.
    """
    ascending = sorted(
        files,
        key=lambda entry: (entry.file.file_size, entry.file.min_sequence_number, *_age(entry)),
    )
    bins = _bins([[entry] for entry in ascending], limits)
    if len(bins[-1]) < limits.least_files:
        bins.pop()
    return [Unit(tuple(sorted(entries, key=_age))) for entries in bins]


def _packed_with_vectors(
    files: Iterable[ManifestEntry], vectors: Mapping[str, Vector], limits: Thresholds
) -> list[Unit]:
    """Packs files with deletion vectors into units. Files that share an index file stay together,
    and one file is enough for a unit.
    """
    groups: dict[str, list[ManifestEntry]] = {}
    for entry in files:
        index, _ = vectors[entry.file.file_name]
        groups.setdefault(index.file.file_name, []).append(entry)
    bins = _bins(
        sorted(groups.values(), key=lambda entries: (size_of(entries), min(map(_age, entries)))),
        limits,
    )
    return [Unit(tuple(sorted(entries, key=_age))) for entries in bins if entries]


def _bins(
    groups: Iterable[Sequence[ManifestEntry]], limits: Thresholds
) -> list[list[ManifestEntry]]:
    """Puts the groups into bins, in their order. The last bin may be empty."""
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
    """The first neighbouring files that are enough for a unit. If these files are too large before
    they are enough, the oldest file is left out, and the search continues.
    """
    considered: list[list[ManifestEntry]] = []
    for block in _blocks(files):
        considered.append(block)
        neighbours = list(chain.from_iterable(considered))
        if len(neighbours) >= limits.least_files:
            return neighbours
        if size_of(neighbours) >= 2 * limits.target:
            considered.pop(0)
    return []


def _full(
    files: Sequence[ManifestEntry], limits: Thresholds, vectors: Mapping[str, Vector]
) -> list[ManifestEntry]:
    """The files of a fixed bucket that a full compaction rewrites. Large files at the beginning
    stay. The files after them are rewritten if there are at least three such files and most of them
    are small, or if one of them has a deletion vector. With `rewrite_all`, all files are rewritten.
    """
    blocks = _blocks(files)
    if limits.rewrite_all:
        return list(chain.from_iterable(blocks))

    def is_small(entry: ManifestEntry) -> bool:
        return entry.file.file_size < limits.small

    def has_vector(entry: ManifestEntry) -> bool:
        return entry.file.file_name in vectors

    def may_stay(block: Iterable[ManifestEntry]) -> bool:
        return not any(is_small(entry) or has_vector(entry) for entry in block)

    behind = list(chain.from_iterable(dropwhile(may_stay, blocks)))
    small = sum(map(is_small, behind))
    most_are_small = len(behind) >= _FULL_LEAST and small > len(behind) - small
    if most_are_small or any(map(has_vector, behind)):
        return behind
    return []


def _blocks(files: Sequence[ManifestEntry]) -> list[list[ManifestEntry]]:
    """The files in the order of their sequence numbers, in blocks that are not divided. Files whose
    numbers overlap are one block (RC3.3). An earlier compaction of Java may have left such files. A
    rewritten block needs as many numbers as it has rows. So files that begin within these numbers
    also belong to the block.
    """
    blocks: list[list[ManifestEntry]] = []
    highest = -1
    needed = -1
    for entry in sorted(files, key=lambda entry: entry.file.min_sequence_number):
        file = entry.file
        if blocks and file.min_sequence_number <= max(highest, needed):
            blocks[-1].append(entry)
        else:
            blocks.append([entry])
            needed = file.min_sequence_number - 1
        highest = max(highest, file.max_sequence_number)
        needed += file.row_count
    return blocks


def _creation_time(entry: ManifestEntry) -> int:
    return entry.file.creation_time or 0


def _age(entry: ManifestEntry) -> tuple[int, str]:
    """The key by which files are sorted by their creation times, the oldest first."""
    return _creation_time(entry), entry.file.file_name


def plan_units(
    scan: Scan,
    runtime: Runtime,
    wrong: Callable[[PaimonStreamError, ManifestEntry], object],
    *,
    full: bool,
    early: bool = True,
    only: Collection[Bucket] | None = None,
    waiting: bool = False,
) -> PlannedUnits:
    """The thresholds of the table, and the units of the scan's files.

    Args:
        scan: the live files.
        runtime: the clock that tells the present time.
        wrong: a function that is called with an error and a file of the bucket. It is called if the
            bucket gets no unit because keys or levels are wrong, or because waiting rows may be
            older than rows in buckets.
        full: whether this is a full compaction.
        early: whether `compaction.optimization-interval` has passed.
        only: the buckets that are planned. None for all.
        waiting: whether rows that wait for their buckets are planned. If there are such rows, no
            other units are planned.

    Raises:
        UnsupportedFeature, StorageError, FormatError: see `check_indexes`.
        InvalidOption: an option of the table cannot be used.
    """
    check_indexes(scan.table, scan.snapshot)
    if scan.merge is None:
        limits = Thresholds.of(scan.table.options)
        units = plan_append(scan.files, limits, scan.vectors, full=full)
        planned = PlannedUnits(limits=limits)
        planned.add(unit for unit in units if only is None or unit.bucket in only)
        return planned
    thresholds = keyed_limits(scan, runtime, early=early)
    planned = PlannedUnits(limits=thresholds)
    if waiting:
        planned.add(_waiting_units(scan, only, wrong))
    if not planned.units:
        planned.add(_keyed_units(scan, scan.merge, thresholds, only, wrong, full=full))
    return planned


def _keyed_units(
    scan: Scan,
    spec: MergeSpec,
    thresholds: KeyedThresholds,
    only: Collection[Bucket] | None,
    wrong: Callable[[PaimonStreamError, ManifestEntry], object],
    *,
    full: bool,
) -> Iterator[Unit]:
    """A unit for each bucket of a table with a primary key that has something to merge. `spec` says
    how rows of one key are merged. The other parameters are those of `plan_units`.
    """
    types = [scan.schema.field(name).type for name in spec.keys]
    for files in buckets(
        entry
        for entry in scan.files
        if entry.bucket >= 0 and (only is None or bucket_of(entry) in only)
    ):
        try:
            unit = next_unit(files, spec, types, thresholds, full=full, vectors=scan.vectors)
        except FormatError as error:
            wrong(error, files[0])
            continue
        if unit is not None:
            yield unit


def _waiting_units(
    scan: Scan,
    only: Collection[Bucket] | None,
    wrong: Callable[[PaimonStreamError, ManifestEntry], object],
) -> list[Unit]:
    """A unit for each partition whose rows wait, with the files in the order of their times
    (table-kinds.md §4.3). If the table is no longer postponed, writers may have put newer rows into
    buckets in the meantime. The waiting rows must not replace these newer rows.
    """
    units: list[Unit] = []
    default = scan.table.options.value(opt.BUCKET)
    if default <= 0:
        default = scan.table.options.value(opt.POSTPONE_BUCKETS)
    for files in buckets(
        entry
        for entry in scan.files
        if entry.bucket < 0 and (only is None or bucket_of(entry) in only)
    ):
        in_buckets = [
            entry
            for entry in scan.files
            if entry.bucket >= 0 and entry.partition == files[0].partition
        ]
        newest_in_buckets = max(map(_creation_time, in_buckets), default=-1)
        oldest_waiting = min(map(_creation_time, files))
        may_replace_newer = bool(in_buckets) and newest_in_buckets >= oldest_waiting
        if may_replace_newer and not scan.table.is_postponed:
            error = UnsupportedFeature(
                "The rows that wait in it may be older than rows in buckets of its partition, and would replace them. "
                "If they are newer, set bucket = -2, compact, and set it back. Else overwrite the partition."
            )
            wrong(error, files[0])
            continue
        count = max((entry.total_buckets for entry in in_buckets), default=default)
        first = max((entry.file.max_sequence_number for entry in in_buckets), default=-1) + 1
        units.append(WaitingUnit(tuple(sorted(files, key=_age)), buckets=count, first=first))
    return units


def keyed_limits(scan: Scan, runtime: Runtime, *, early: bool = True) -> KeyedThresholds:
    """The thresholds of a table with a primary key at this moment. See `plan_units` for `early`.
    Raises `InvalidOption`.
    """
    options = scan.table.options
    spec = scan.merge
    assert spec is not None
    hour = runtime.clock.local_millis() // _MILLIS_OF_HOUR % 24
    sums = [name for name, rule in spec.rules.items() if rule.function == "sum"]
    # The sum of some values may be too large for the type, even if the sum of all values is not.
    sums_decimals = any(scan.schema.field(name).type.root is TypeRoot.DECIMAL for name in sums)
    schemas = SchemaStore(scan.table.storage)
    expiry = RecordExpiry.of(scan.schema, options, schemas, runtime.clock.now_millis())
    limits = KeyedThresholds.of(
        spec,
        options,
        hour,
        columns=scan.schema.field_names,
        as_whole=sums_decimals,
        expiry=expiry,
    )
    if not early:
        limits = replace(limits, always_full=False)
    return limits


def rewriter_of(
    scan: Scan,
    limits: Thresholds | KeyedThresholds,
    units: Sequence[Unit],
    runtime: Runtime,
    progress: Progress,
) -> Rewriter:
    """The rewriter that carries out these units. Raises `ConfigError`s."""
    if isinstance(limits, Thresholds):
        return Rewriter(scan, runtime, progress, units)
    if any(isinstance(unit, WaitingUnit) for unit in units):
        return Distributor(scan, runtime, progress, units)
    keyed = [unit for unit in units if isinstance(unit, KeyedUnit)]
    return KeyedRewriter(scan, runtime, progress, keyed, limits)
