"""Decides which files of a bucket with a primary key are merged, and onto which level
(compaction.md §4, §5.1). Sizes, levels and key ranges decide this, so the storage is not accessed.

The files form sorted *runs*. The runs with the newest data come first: first each file of level 0,
then each level from 1 on. A unit has the first runs, without a gap between them. All files of level
0 are among them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from paimon_stream import options as opt
from paimon_stream.commit.overwrite import top_level
from paimon_stream.compact.older_rows import OlderRows, RecordExpiry
from paimon_stream.compact.units import KeyedUnit, Merge, size_of
from paimon_stream.errors import FormatError, InvalidOption
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.stats import row_order
from paimon_stream.format.types import DataType
from paimon_stream.merge.spec import AGGREGATION, PARTIAL_UPDATE, MergeSpec
from paimon_stream.read.merged import Section, sections, with_older
from paimon_stream.write.data_file import small_below, target_bytes

_EXACT: Final = ("key", "of_group", "sum", "last_value")
"""The functions that lose nothing if newer rows, also deletes, are merged before older rows."""


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Files of one level with disjoint keys.

    Attributes:
        level: the level of the files.
        size: the size of the files in bytes.
        files: the files in the order of their keys.
    """

    level: int
    size: int
    files: tuple[ManifestEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """The first `runs` of a bucket are merged onto `level`."""

    runs: int
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedThresholds:
    """The thresholds that decide which runs are merged.

    Attributes:
        target: the size of a new file in bytes.
        small: a file with fewer bytes than this is small, and is merged with its neighbours.
        top: the highest level.
        trigger: how many runs a bucket must have to be compacted.
        amplification: all runs are merged if the other runs together are larger than this
            percentage of the last run.
        ratio: a run is added to a pick if it is larger than all runs of the pick together by at
            most this percentage.
        always_full: whether every pick of several runs has all runs.
        total: all runs are merged if all of them together have fewer bytes than this. None means
            that there is no such rule.
        incremental: all runs are merged if the runs below the highest level have more bytes than
            this. None means that there is no such rule.
        force: whether level 0 is always emptied.
        rewrite_all: whether files are rewritten that only have to change their level, or that could
            stay as they are.
        older: the rules for older rows.
        as_whole: whether a bucket is merged as a whole, and never a part of it.
        expiry: the rule that drops old rows. None if rows do not expire.
    """

    target: int
    small: int
    top: int
    trigger: int
    amplification: int
    ratio: int
    always_full: bool
    total: int | None
    incremental: int | None
    force: bool
    rewrite_all: bool
    older: OlderRows
    as_whole: bool = False
    expiry: RecordExpiry | None = None

    @classmethod
    def of(
        cls,
        spec: MergeSpec,
        options: opt.Options,
        hour: int,
        *,
        columns: Iterable[str] = (),
        as_whole: bool = False,
        expiry: RecordExpiry | None = None,
    ) -> "KeyedThresholds":
        """The thresholds of a table.

        Args:
            spec: how the table's rows are merged.
            options: the options of the table.
            hour: the hour of the local day, from 0 to 23.
            columns: the names of the table's columns.
            as_whole: whether a bucket is merged as a whole, and never a part of it.
            expiry: the rule that drops old rows. None if rows do not expire.

        Raises:
            InvalidOption: an option cannot be used.
        """
        target = target_bytes(options, keyed=True)
        off_peak_ratio = 0
        if _is_off_peak(options, hour):
            off_peak_ratio = options.value(opt.COMPACTION_OFFPEAK_RATIO)
        top = max(1, top_level(options))
        older = OlderRows.of(spec, options, columns, top)
        return cls(
            target=target,
            small=small_below(target, options),
            top=top,
            trigger=options.value(opt.COMPACTION_TRIGGER),
            amplification=options.value(opt.COMPACTION_AMPLIFICATION),
            ratio=options.value(opt.COMPACTION_SIZE_RATIO) + off_peak_ratio,
            always_full=options.is_set(opt.COMPACTION_INTERVAL),
            total=_value_if_set(options, opt.COMPACTION_TOTAL_SIZE),
            incremental=_value_if_set(options, opt.COMPACTION_INCREMENTAL_SIZE),
            force=options.value(opt.COMPACTION_FORCE_UP) or older.looks_up,
            rewrite_all=options.value(opt.COMPACTION_REWRITE_ALL),
            older=older,
            as_whole=as_whole,
            expiry=expiry,
        )

    def drops_rows_of(self, entry: ManifestEntry) -> bool:
        """Whether rows of this file are dropped when it is rewritten. Raises `CorruptMetadata`,
        `StorageError`.
        """
        return self.expiry is not None and self.expiry.is_due(entry)


def _value_if_set(options: opt.Options, option: opt.Option[int]) -> int | None:
    """The value of an option whose threshold is off unless it is set."""
    if options.is_set(option):
        return options.value(option)
    return None


def _is_off_peak(options: opt.Options, hour: int) -> bool:
    start = options.value(opt.COMPACTION_OFFPEAK_START)
    end = options.value(opt.COMPACTION_OFFPEAK_END)
    if start < 0 or end < 0:
        return False
    if start <= end:
        return start <= hour < end
    return hour >= start or hour < end


def next_unit(
    files: Sequence[ManifestEntry],
    spec: MergeSpec,
    types: Sequence[DataType],
    limits: KeyedThresholds,
    *,
    full: bool,
    vectors: Collection[str] = (),
) -> KeyedUnit | None:
    """The next unit of one bucket. None if there is nothing to do.

    Args:
        files: all files of the bucket, in the order of commits.
        spec: how rows of one key are merged.
        types: the types of the key.
        limits: the thresholds that decide which runs are merged.
        full: whether this is a full compaction.
        vectors: the names of the files with deletion vectors.

    Raises:
        FormatError: a key cannot be decoded, or files of one level overlap.
        StorageError: an older schema, which is needed to find old rows, cannot be read.
        InvalidOption: the bucket has files above the highest level, and a changelog would not have
            their rows.
    """
    runs = runs_of(files, types)
    limits = _with_highest_level(limits, runs, spec)
    chosen = _chosen(runs, spec, limits, vectors, full=full)
    if chosen is None:
        return None
    picked = {entry.identity for run in runs[: chosen.runs] for entry in run.files}
    picked_files = [entry for entry in files if entry.identity in picked]
    is_one_file_in_place = len(picked_files) == 1 and picked_files[0].file.level == chosen.level
    if is_one_file_in_place and not full:
        return None
    is_one_run_in_place = len(runs) == 1 and runs[0].level == chosen.level
    has_older = chosen.level < max(entry.file.level for entry in files)
    merges, upgrades = _merges_and_upgrades(
        sections(picked_files, types),
        chosen.level,
        limits,
        rewritten_anyway=vectors if is_one_run_in_place else (),
        joins_small=not is_one_run_in_place,
        keep_deletes=has_older and not limits.older.deletes_older,
    )
    return _unit_of(files, merges, upgrades, chosen.level, types)


def _unit_of(
    files: Sequence[ManifestEntry],
    merges: Sequence[Merge],
    upgrades: Sequence[ManifestEntry],
    level: int,
    types: Sequence[DataType],
) -> KeyedUnit | None:
    """The unit with these merges and upgrades to a level, in a bucket with these files. None if it
    would replace no file. Raises `FormatError` if a key cannot be decoded.
    """
    replaced = [entry for merge in merges if merge.writes for entry in merge.files]
    replaced += upgrades
    if not replaced:
        return None
    above = [entry for entry in files if entry.file.level > level]
    merges_with_older = tuple(_with_older(merge, above, types) for merge in merges)
    return KeyedUnit(
        tuple(replaced),
        tuple(upgrades),
        level=level,
        merges=merges_with_older,
        in_bucket=tuple(files),
    )


def _chosen(
    runs: Sequence[SortedRun],
    spec: MergeSpec,
    limits: KeyedThresholds,
    vectors: Collection[str],
    *,
    full: bool,
) -> Pick | None:
    """The runs of a bucket that are merged, and the level onto which they are merged. None if no
    run is merged. All runs are merged if rows could change by merging only the newer runs. The
    parameters are those of `next_unit`.
    """
    chosen = pick_full(runs, limits, vectors) if full else pick(runs, limits)
    if chosen is None:
        return None
    is_part = chosen.runs < len(runs) and not limits.older.looks_up
    if is_part and (limits.as_whole or _loses(spec, runs, chosen.runs)):
        return Pick(len(runs), limits.top)
    return chosen


def _with_highest_level(
    limits: KeyedThresholds, runs: Iterable[SortedRun], spec: MergeSpec
) -> KeyedThresholds:
    """The thresholds for a bucket that may have files above the highest level of the table. Raises
    `InvalidOption` if a changelog would not have their rows.
    """
    highest = max([limits.top, *(run.level for run in runs)])
    if highest > limits.top and limits.older.full:
        raise InvalidOption(
            f"has files on level {highest}, but its highest level is {limits.top}. "
            f"Its changelog would lack their rows. Set num-levels to {highest + 1} or more.",
            option=opt.NUM_LEVELS.key,
        ).of_table(spec.table, subject=True)
    return replace(limits, top=highest, older=replace(limits.older, top=highest))


def _with_older(merge: Merge, above: Sequence[ManifestEntry], types: Sequence[DataType]) -> Merge:
    """The merge, including the files above its level in which rows have to be looked up."""
    looks_up = merge.comparison is not None and merge.comparison.looks_up
    if not looks_up or not above:
        return merge
    return replace(merge, sections=tuple(with_older(merge.sections, above, types)))


# -- runs -----------------------------------------------------------------------------------------
def runs_of(files: Iterable[ManifestEntry], types: Sequence[DataType]) -> list[SortedRun]:
    """The runs of one bucket (§4.1). Raises `FormatError` if files of a level above 0 overlap."""
    runs = _runs(files)
    order = row_order(types)
    for position, run in enumerate(runs):
        ordered = list(run.files)
        if run.level:
            ordered.sort(key=lambda entry: order(entry.file.min_key))
        for lower, upper in pairwise(ordered):
            if order(lower.file.max_key) >= order(upper.file.min_key):
                raise FormatError(
                    f"The keys of {lower.file.file_name} and {upper.file.file_name} overlap, but both are on "
                    f"level {run.level}, where no two files may have the same keys. Two compactions ran at the "
                    "same time. Roll the table back to before them, and let only one job compact it."
                )
        runs[position] = replace(run, files=tuple(ordered))
    return runs


def _runs(files: Iterable[ManifestEntry]) -> list[SortedRun]:
    """The runs of one bucket, found without looking at keys. The files of a run are in no
    particular order.
    """
    levels: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
    for entry in files:
        levels[entry.file.level].append(entry)
    newest = [
        SortedRun(0, entry.file.file_size, (entry,))
        for entry in sorted(levels.pop(0, ()), key=_age)
    ]
    return newest + [
        SortedRun(level, size_of(entries), tuple(entries))
        for level, entries in sorted(levels.items())
    ]


def _age(entry: ManifestEntry) -> tuple[int, int, int, str]:
    """The key by which files of level 0 are sorted, the newest first."""
    file = entry.file
    return (
        -file.max_sequence_number,
        file.min_sequence_number,
        file.creation_time or 0,
        file.file_name,
    )


def asks(files: Iterable[ManifestEntry], limits: KeyedThresholds) -> bool:
    """Whether a minor compaction of this bucket may have something to do. This function reads no
    keys, so it is fast.
    """
    return pick(_runs(files), limits) is not None


# -- picks ----------------------------------------------------------------------------------------
def pick(runs: Sequence[SortedRun], limits: KeyedThresholds) -> Pick | None:
    """The runs that a minor compaction merges (§4.2). The rules are applied in Java's order. None
    if there is nothing to do.
    """
    count = len(runs)
    trigger = limits.trigger
    if not count:
        return None
    before_last = sum(run.size for run in runs[:-1])
    is_large = count >= trigger and 100 * before_last > limits.amplification * runs[-1].size
    if is_large or (count > 1 and _is_early(runs, limits)):
        return Pick(count, limits.top)
    if count >= trigger:
        of_similar_size = _count_with_similar(runs, 1, limits)
        if of_similar_size > 1:
            return _pick_of(runs, of_similar_size, limits)
    if count > trigger:
        above_trigger = _count_with_similar(runs, count - trigger + 1, limits)
        if above_trigger > 1:
            return _pick_of(runs, above_trigger, limits)
    newest = sum(run.level == 0 for run in runs)
    if limits.force and newest:
        return _pick_of(runs, _count_with_similar(runs, newest, limits), limits)
    return None


def pick_full(
    runs: Sequence[SortedRun], limits: KeyedThresholds, vectors: Collection[str] = ()
) -> Pick | None:
    """The runs that a full compaction merges (§4.3). These are all runs. None if there are no runs,
    or if all files are on the highest level and have no old or deleted rows. With `rewrite_all`,
    such files are rewritten, too. Raises `CorruptMetadata`, `StorageError`.
    """
    if not runs:
        return None
    is_in_place = len(runs) == 1 and runs[0].level == limits.top
    if is_in_place and not limits.rewrite_all:
        loses_rows = any(
            entry.file.file_name in vectors or limits.drops_rows_of(entry)
            for entry in runs[0].files
        )
        if not loses_rows:
            return None
    return Pick(len(runs), limits.top)


def _is_early(runs: Sequence[SortedRun], limits: KeyedThresholds) -> bool:
    """Whether all runs are merged although there are only a few runs. The time of the last full
    compaction is not known, so the interval between full compactions is assumed to have passed
    (RC4.1).
    """
    size = sum(run.size for run in runs)
    size_below_top = sum(run.size for run in runs if run.level != limits.top)
    are_small = limits.total is not None and size < limits.total
    many_are_new = limits.incremental is not None and size_below_top > limits.incremental
    return limits.always_full or are_small or many_are_new


def _count_with_similar(runs: Sequence[SortedRun], least: int, limits: KeyedThresholds) -> int:
    """The number of runs in a pick. The pick has the first `least` runs. Further runs are added as
    long as the next run is not much larger than all runs before it together.
    """
    count = least
    size = sum(run.size for run in runs[:least])
    for run in runs[least:]:
        if size * (100.0 + limits.ratio) / 100.0 < run.size:
            break
        size += run.size
        count += 1
    return count


def _pick_of(runs: Sequence[SortedRun], least: int, limits: KeyedThresholds) -> Pick:
    """A pick of at least the first `least` runs, and of all runs of level 0. If the pick has all
    runs, its level is the highest level. Otherwise, it is the level below the first run that is not
    in the pick.
    """
    count = least
    level = limits.top if count == len(runs) else max(0, runs[count].level - 1)
    while level == 0 and count < len(runs):
        level = runs[count].level
        count += 1
    if count == len(runs):
        level = limits.top
    return Pick(count, level)


def _loses(spec: MergeSpec, runs: Sequence[SortedRun], count: int) -> bool:
    """Whether rows could change if the first `count` runs are merged without the older ones
    (RC5.6).

    With these engines, a merged row does not show which values a delete has removed, or between
    which older rows its parts belong. Products are rounded. A delimiter of several characters may
    be formed by the end of one value and the beginning of the next.
    """
    if spec.engine not in (PARTIAL_UPDATE, AGGREGATION):
        return False
    rules = spec.rules.values()
    has_groups = any(rule.group is not None and rule.function not in _EXACT for rule in rules)
    has_long_delimiter = any(
        rule.function == "listagg" and rule.distinct and len(rule.delimiter) > 1 for rule in rules
    )
    has_product = any(rule.function == "product" for rule in rules)
    if spec.sequence_fields or has_groups or has_long_delimiter or has_product:
        return True
    newer = [entry.file for run in runs[:count] for entry in run.files]
    older = [entry.file for run in runs[count:] for entry in run.files]
    lowest_of_newer = min(file.min_sequence_number for file in newer)
    highest_of_older = max(file.max_sequence_number for file in older)
    if lowest_of_newer <= highest_of_older:
        return True  # two writers used the same numbers
    is_exact = (
        spec.engine == AGGREGATION
        and not spec.remove_on_delete
        and all(rule.function in _EXACT for rule in rules)
        and not any(rule.function == "last_value" and rule.ignore_retract for rule in rules)
    )
    return not is_exact and any(file.delete_row_count != 0 for file in newer)


# -- sections -------------------------------------------------------------------------------------
def _merges_and_upgrades(
    picked_sections: Iterable[Section],
    level: int,
    limits: KeyedThresholds,
    *,
    rewritten_anyway: Collection[str],
    joins_small: bool,
    keep_deletes: bool,
) -> tuple[list[Merge], list[ManifestEntry]]:
    """Which sections are rewritten together, and which files only change their level (§5.1).

    Args:
        picked_sections: all sections that are placed on the level.
        level: the level.
        limits: the thresholds that decide which files are rewritten.
        rewritten_anyway: the names of files that are rewritten in any case.
        joins_small: whether small files are merged with their neighbours.
        keep_deletes: whether rows that delete are kept in a merge.
    """
    merges: list[Merge] = []
    upgrades: list[ManifestEntry] = []
    small = limits.small if joins_small else 0
    for group in _neighbours(picked_sections, small):
        entry = group[0].single if len(group) == 1 else None
        if entry is None or _is_rewritten(entry, level, limits, rewritten_anyway):
            files = [entry for section in group for entry in section.files]
            comparison = limits.older.merging(level, files)
            merges.append(
                Merge(sections=tuple(group), keep_deletes=keep_deletes, comparison=comparison)
            )
        elif entry.file.level != level:
            comparison, rewrites = limits.older.upgrading(level, entry)
            if comparison is not None:
                # As in Java, deletes stay in a file that is rewritten instead of upgraded, unless
                # the table has deletion vectors (§7.3).
                merges.append(
                    Merge(
                        sections=tuple(group),
                        keep_deletes=not limits.older.deletes_older,
                        comparison=comparison,
                        writes=rewrites,
                    )
                )
            if not rewrites:
                upgrades.append(entry)
    return merges, upgrades


def _is_rewritten(
    entry: ManifestEntry, level: int, limits: KeyedThresholds, rewritten_anyway: Collection[str]
) -> bool:
    """Whether a file that is placed on this level loses rows, or has to be rewritten for another
    reason. `rewritten_anyway` has the names of files that are rewritten in any case.
    """
    may_have_deletes = entry.file.delete_row_count != 0
    if limits.rewrite_all or (level == limits.top and may_have_deletes):
        return True
    if limits.drops_rows_of(entry):
        return True
    if entry.file.level == 0 and limits.older.deletes_older and limits.expiry is not None:
        # The keys of rows that were too old when they arrived are not looked up. So such rows are
        # dropped, even if the statistics do not show them.
        return True
    return entry.file.file_name in rewritten_anyway


def _neighbours(picked_sections: Iterable[Section], small: int) -> Iterator[list[Section]]:
    """The sections in groups. Neighbouring sections are in one group if each of them is a small
    file or has several files with common keys. A large file is a separate group. A file with fewer
    than `small` bytes is small.
    """
    waiting: list[Section] = []
    for section in picked_sections:
        entry = section.single
        if entry is None or entry.file.file_size < small:
            waiting.append(section)
            continue
        if waiting:
            yield waiting
        waiting = []
        yield [section]
    if waiting:
        yield waiting
