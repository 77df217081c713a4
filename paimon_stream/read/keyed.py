"""Which files of a primary-key bucket are merged with each other, and in what order. A *section* is a set of files
whose key ranges overlap, directly or through others, so no key is in two. A section of one file is read without
merging. Within a section, files whose ranges follow one another form a *run*, so that there are few sorted inputs."""

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pyarrow as pa

from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.types import DataType

Key = tuple[Any, ...]
"""A key in a form that compares as its rows do."""

_NAN: Final = (1, 0.0)


@dataclass(frozen=True, slots=True)
class Section:
    """Files that are merged together, as runs in key order. `ages` is each file's place in the order of commits, oldest
    first. `beside` are runs of higher levels, in which a compaction looks up the keys of the others."""

    runs: tuple[tuple[ManifestEntry, ...], ...]
    ages: dict[str, int]
    beside: tuple[tuple[ManifestEntry, ...], ...] = ()

    @property
    def files(self) -> list[ManifestEntry]:
        """The section's files."""
        return [one for run in self.runs for one in run]

    @property
    def single(self) -> ManifestEntry | None:
        """The section's only file; None if it has several."""
        return self.runs[0][0] if len(self.runs) == len(self.runs[0]) == 1 else None


def buckets(files: Iterable[ManifestEntry]) -> list[list[ManifestEntry]]:
    """The files of each bucket. Buckets are in the order of their first files."""
    found: dict[tuple[bytes, int], list[ManifestEntry]] = {}
    for entry in files:
        found.setdefault((entry.partition, entry.bucket), []).append(entry)
    return list(found.values())


def sections(files: Sequence[ManifestEntry], types: Sequence[DataType]) -> list[Section]:
    """The sections of a bucket, in key order. `files` are in commit order. Raises `FormatError` for broken keys."""
    ages = {id(entry): age for age, entry in enumerate(sorted(files, key=lambda one: -one.file.level))}
    ranges = sorted(
        ((_key(types, one.file.min_key), _key(types, one.file.max_key), ages[id(one)], one) for one in files),
        key=lambda one: one[:3],
    )
    made: list[Section] = []
    held: list[tuple[Key, Key, int, ManifestEntry]] = []
    bound: Key = ()
    for one in ranges:
        if held and one[0] > bound:
            made.append(_section(held))
            held = []
        bound = max(bound, one[1]) if held else one[1]
        held.append(one)
    if held:
        made.append(_section(held))
    return made


def with_older(
    found: Iterable[Section], older: Iterable[ManifestEntry], types: Sequence[DataType]
) -> Iterator[Section]:
    """The sections, each with the `older` files that may have keys of it. These are of higher levels, on each
    of which no two files have the same keys. Raises `FormatError` for keys that cannot be decoded."""
    levels: defaultdict[int, list[tuple[Key, Key, ManifestEntry]]] = defaultdict(list)
    for one in older:
        levels[one.file.level].append((_key(types, one.file.min_key), _key(types, one.file.max_key), one))
    for files in levels.values():
        files.sort(key=lambda one: one[0])
    for section in found:
        least = min(_key(types, one.file.min_key) for one in section.files)
        most = max(_key(types, one.file.max_key) for one in section.files)
        spans = (
            files[bisect_left(files, least, key=lambda one: one[1]) : bisect_right(files, most, key=lambda one: one[0])]
            for files in levels.values()
        )
        runs = tuple(tuple(entry for *_, entry in span) for span in spans if span)
        ages = {one.file.file_name: -one.file.level for run in runs for one in run}
        yield replace(section, ages=section.ages | ages, beside=runs)


def _section(ranges: Sequence[tuple[Key, Key, int, ManifestEntry]]) -> Section:
    """Builds the runs: a file joins the run that ends first if it begins after that end, else it starts a new run."""
    ticket = count()
    runs: list[tuple[Key, int, list[ManifestEntry]]] = []
    for least, most, _, entry in ranges:
        if runs and runs[0][0] < least:
            _, number, run = heapq.heappop(runs)
            run.append(entry)
            heapq.heappush(runs, (most, number, run))
        else:
            heapq.heappush(runs, (most, next(ticket), [entry]))
    ages = {entry.file.file_name: age for _, _, age, entry in ranges}
    return Section(tuple(tuple(run) for _, _, run in runs), ages)


def _key(types: Sequence[DataType], row: bytes) -> Key:
    return tuple(map(_comparable, deserialize(types, row)))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return _NAN if math.isnan(value) else (0, value)
    return value


def key_at(columns: Sequence[pa.Array]) -> Callable[[int], Key]:
    """Returns a function that gives the key in a row of these columns, in the form in which keys compare."""
    return lambda row: tuple(_scalar(column[row]) for column in columns)


def _scalar(scalar: Any) -> Any:
    type_ = scalar.type
    if pa.types.is_timestamp(type_) or pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return scalar.value
    return _comparable(scalar.as_py())
