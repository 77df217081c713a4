"""Which files of a bucket with a primary key are merged, and onto which level (compaction.md §4,
§5.1), by sizes, levels and key ranges only; no storage is touched. The files form sorted *runs*,
the newest data first: each file of level 0, then each level from 1 on. A unit takes the first runs,
never some in the middle, and all of level 0.
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
"""The functions that lose nothing if newer rows, deletes included, are merged before older ones."""


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A sorted run: files with disjoint keys, in the order of their keys. `size` is bytes."""

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
    """What decides which runs are merged. Sizes are bytes, `ratio` is per cent. `top` is the
    highest level. With `always_full`, every pick of several runs takes all. With `force`, level 0
    is always emptied. With `as_whole`, no part of a bucket is merged alone. `older` says what is
    done with older rows, `expiry` drops old rows.
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
        """The thresholds at this hour of the local day, for a table with these columns. Raises
        `InvalidOption`.
        """
        target = target_bytes(options, keyed=True)
        off_peak = options.value(opt.COMPACTION_OFFPEAK_RATIO) if _is_off_peak(options, hour) else 0
        total, more = opt.COMPACTION_TOTAL_SIZE, opt.COMPACTION_INCREMENTAL_SIZE
        top = max(1, top_level(options))
        older = OlderRows.of(spec, options, columns, top)
        return cls(
            target=target,
            small=small_below(target, options),
            top=top,
            trigger=options.value(opt.COMPACTION_TRIGGER),
            amplification=options.value(opt.COMPACTION_AMPLIFICATION),
            ratio=options.value(opt.COMPACTION_SIZE_RATIO) + off_peak,
            always_full=options.is_set(opt.COMPACTION_INTERVAL),
            total=options.value(total) if options.is_set(total) else None,
            incremental=options.value(more) if options.is_set(more) else None,
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


def _is_off_peak(options: opt.Options, hour: int) -> bool:
    start, end = (
        options.value(opt.COMPACTION_OFFPEAK_START),
        options.value(opt.COMPACTION_OFFPEAK_END),
    )
    if start < 0 or end < 0:
        return False
    return start <= hour < end if start <= end else hour >= start or hour < end


def next_unit(
    files: Sequence[ManifestEntry],
    spec: MergeSpec,
    types: Sequence[DataType],
    limits: KeyedThresholds,
    *,
    full: bool,
    vectors: Collection[str] = (),
) -> KeyedUnit | None:
    """What is to be done next in one bucket; None if nothing is. `files` are all of its files, in
    the order of commits, and `types` are the types of the key. `vectors` are the names of the files
    with deletion vectors. Raises `FormatError` for keys that cannot be decoded and for a level
    whose files overlap.
    """
    runs = runs_of(files, types)
    highest = max([limits.top, *(one.level for one in runs)])
    if highest > limits.top and limits.older.full:
        cure = f"Its changelog would lack their rows. Set num-levels to {highest + 1} or more."
        text = f"has files on level {highest}, but its highest level is {limits.top}. {cure}"
        raise InvalidOption(text, option=opt.NUM_LEVELS.key).of_table(spec.table, subject=True)
    limits = replace(limits, top=highest, older=replace(limits.older, top=highest))
    chosen = pick_full(runs, limits, vectors) if full else pick(runs, limits)
    if chosen is None:
        return None
    if (
        chosen.runs < len(runs)
        and not limits.older.looks_up
        and (limits.as_whole or _loses(spec, runs, chosen.runs))
    ):
        chosen = Pick(len(runs), limits.top)
    taken = {one.identity for run in runs[: chosen.runs] for one in run.files}
    inside = [one for one in files if one.identity in taken]
    if not full and len(inside) == 1 and inside[0].file.level == chosen.level:
        return None
    alone = len(runs) == 1 and runs[0].level == chosen.level
    keep = chosen.level < max(one.file.level for one in files) and not limits.older.marks
    merges, upgrades = _split(
        sections(inside, types), chosen, limits, vectors if alone else None, keep=keep
    )
    replaced = [*(file for one in merges if one.writes for file in one.files), *upgrades]
    if not replaced:
        return None
    above = [one for one in files if one.file.level > chosen.level]
    looking = tuple(_looking_up(one, above, types) for one in merges)
    return KeyedUnit(
        tuple(replaced), tuple(upgrades), level=chosen.level, merges=looking, in_bucket=tuple(files)
    )


def _looking_up(merge: Merge, above: Sequence[ManifestEntry], types: Sequence[DataType]) -> Merge:
    if merge.comparison is None or not merge.comparison.looks_up or not above:
        return merge
    return replace(merge, sections=tuple(with_older(merge.sections, above, types)))


# -- runs
# -------------------------------------------------------------------------------------------
def runs_of(files: Iterable[ManifestEntry], types: Sequence[DataType]) -> list[SortedRun]:
    """The runs of one bucket (§4.1). Raises `FormatError` if files of a level from 1 on overlap."""
    runs, order = _runs(files), row_order(types)
    for i, run in enumerate(runs):
        found = (
            sorted(run.files, key=lambda one: order(one.file.min_key)) if run.level else run.files
        )
        for lower, upper in pairwise(found):
            if order(lower.file.max_key) >= order(upper.file.min_key):
                raise FormatError(
                    f"The keys of {lower.file.file_name} and {upper.file.file_name} overlap, but both are on "
                    f"level {run.level}, where no two files may have the same keys. Two compactions ran at the "
                    "same time. Roll the table back to before them, and let only one job compact it."
                )
        runs[i] = replace(run, files=tuple(found))
    return runs


def _runs(files: Iterable[ManifestEntry]) -> list[SortedRun]:
    """The same, without a look at the keys: the files of a run come in any order."""
    levels: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
    for one in files:
        levels[one.file.level].append(one)
    newest = [
        SortedRun(0, one.file.file_size, (one,)) for one in sorted(levels.pop(0, ()), key=_age)
    ]
    return newest + [
        SortedRun(level, size_of(found), tuple(found)) for level, found in sorted(levels.items())
    ]


def _age(entry: ManifestEntry) -> tuple[int, int, int, str]:
    file = entry.file
    return (
        -file.max_sequence_number,
        file.min_sequence_number,
        file.creation_time or 0,
        file.file_name,
    )


def asks(files: Iterable[ManifestEntry], limits: KeyedThresholds) -> bool:
    """Whether a minor compaction of this bucket may have something to do. Looks at no key, so it is
    cheap.
    """
    return pick(_runs(files), limits) is not None


# -- picks
# ------------------------------------------------------------------------------------------
def pick(runs: Sequence[SortedRun], limits: KeyedThresholds) -> Pick | None:
    """The runs of a minor compaction (§4.2), in Java's order of rules. None if there is nothing to
    do.
    """
    count, trigger = len(runs), limits.trigger
    if not count:
        return None
    before_last = sum(one.size for one in runs[:-1])
    is_large = count >= trigger and 100 * before_last > limits.amplification * runs[-1].size
    if is_large or (count > 1 and _is_early(runs, limits)):
        return Pick(count, limits.top)
    if count >= trigger and (taken := _grown(runs, 1, limits)) > 1:
        return _onto(runs, taken, limits)
    if count > trigger and (taken := _grown(runs, count - trigger + 1, limits)) > 1:
        return _onto(runs, taken, limits)
    newest = sum(one.level == 0 for one in runs)
    return _onto(runs, _grown(runs, newest, limits), limits) if limits.force and newest else None


def pick_full(
    runs: Sequence[SortedRun], limits: KeyedThresholds, vectors: Collection[str] = ()
) -> Pick | None:
    """The runs of a full compaction (§4.3): all, if not all is on the highest level, or old or
    deleted rows are.
    """
    if not runs:
        return None
    done = len(runs) == 1 and runs[0].level == limits.top and not limits.rewrite_all
    if done and not any(
        one.file.file_name in vectors or limits.drops_rows_of(one) for one in runs[0].files
    ):
        return None
    return Pick(len(runs), limits.top)


def _is_early(runs: Sequence[SortedRun], limits: KeyedThresholds) -> bool:
    """Whether all runs are merged before they are many. When the last full compaction was is not
    known, so an interval between these has always passed (RC4.1).
    """
    size = sum(one.size for one in runs)
    below = sum(one.size for one in runs if one.level != limits.top)
    return (
        limits.always_full
        or (limits.total is not None and size < limits.total)
        or (limits.incremental is not None and below > limits.incremental)
    )


def _grown(runs: Sequence[SortedRun], taken: int, limits: KeyedThresholds) -> int:
    """How many runs are taken if at least `taken` are: more as long as the next is not much
    larger.
    """
    size = sum(one.size for one in runs[:taken])
    for one in runs[taken:]:
        if size * (100.0 + limits.ratio) / 100.0 < one.size:
            break
        size += one.size
        taken += 1
    return taken


def _onto(runs: Sequence[SortedRun], taken: int, limits: KeyedThresholds) -> Pick:
    """The level is below that of the first run that stays. Level 0 is taken as a whole."""
    level = limits.top if taken == len(runs) else max(0, runs[taken].level - 1)
    while level == 0 and taken < len(runs):
        level = runs[taken].level
        taken += 1
    return Pick(taken, limits.top if taken == len(runs) else level)


def _loses(spec: MergeSpec, runs: Sequence[SortedRun], count: int) -> bool:
    """Whether rows could change if the first `count` runs are merged without the older ones
    (RC5.6). A merged row of these engines cannot say what a delete took away, nor between which
    older rows its parts belong. Products are rounded, and a long delimiter can be found across two
    values.
    """
    if spec.engine not in (PARTIAL_UPDATE, AGGREGATION):
        return False
    rules = spec.rules.values()
    grouped = any(one.group is not None and one.function not in _EXACT for one in rules)
    split = any(
        one.function == "listagg" and one.distinct and len(one.delimiter) > 1 for one in rules
    )
    if spec.sequence_fields or grouped or split or any(one.function == "product" for one in rules):
        return True
    taken = [one.file for run in runs[:count] for one in run.files]
    left = [one.file for run in runs[count:] for one in run.files]
    if min(one.min_sequence_number for one in taken) <= max(
        one.max_sequence_number for one in left
    ):
        return True  # two writers took the same numbers
    exact = spec.engine == AGGREGATION and not spec.remove_on_delete
    exact = exact and all(one.function in _EXACT for one in rules)
    exact = exact and not any(one.function == "last_value" and one.ignore_retract for one in rules)
    return not exact and any(one.delete_row_count != 0 for one in taken)


# -- sections
# ---------------------------------------------------------------------------------------
def _split(
    found: Iterable[Section],
    chosen: Pick,
    limits: KeyedThresholds,
    alone: Collection[str] | None,
    *,
    keep: bool,
) -> tuple[list[Merge], list[ManifestEntry]]:
    """What is rewritten together, and what only changes its level (§5.1). With `alone`, each file
    is rewritten on its own, and so are these files in any case. `keep`: deletes stay.
    """
    merges: list[Merge] = []
    upgrades: list[ManifestEntry] = []
    level = chosen.level
    for group in _neighbours(found, limits.small if alone is None else 0):
        entry = group[0].single if len(group) == 1 else None
        if (
            entry is None
            or limits.rewrite_all
            or (level == limits.top and entry.file.delete_row_count != 0)
            or limits.drops_rows_of(entry)
            # A row that is too old on arrival goes, whatever the statistics say: its key was not
            # looked up.
            or (entry.file.level == 0 and limits.older.marks and limits.expiry is not None)
            or (alone is not None and entry.file.file_name in alone)
        ):
            files = [one for section in group for one in section.files]
            comparison = limits.older.merging(level, files)
            merges.append(Merge(sections=tuple(group), keep_deletes=keep, comparison=comparison))
        elif entry.file.level != level:
            comparison, writes = limits.older.upgrading(level, entry)
            if comparison is not None:
                # As in Java, deletes stay in what takes the place of an upgrade, without deletion
                # vectors (§7.3).
                stay = not limits.older.marks
                merges.append(
                    Merge(
                        sections=tuple(group),
                        keep_deletes=stay,
                        comparison=comparison,
                        writes=writes,
                    )
                )
            upgrades += [] if writes else [entry]
    return merges, upgrades


def _neighbours(found: Iterable[Section], small: int) -> Iterator[list[Section]]:
    """Neighbours that are small files or share keys, together. Each large file between them,
    alone.
    """
    waiting: list[Section] = []
    for section in found:
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
