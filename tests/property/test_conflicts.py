"""For all commits in any order, the conflicts and the live files are those of a dict of files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.commit.committer import Committer, Nothing, Published
from paimon_stream.errors import CommitConflict, KeyRangeOverlap
from paimon_stream.format.binary_row import deserialize, serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta
from tests.kits.commits import FIELDS, Bench, data_file
from tests.kits.seeds import examples

KEY = (FIELDS[0].type,)
PARTITIONS = ("x", "y")


@dataclass(frozen=True)
class Step:
    """One commit: files by number that it adds to, removes from, or moves up within one
    partition.
    """

    what: str
    partition: int
    files: tuple[int, ...]
    low: int
    width: int
    new_committer: bool
    who: int


steps = st.builds(
    Step,
    what=st.sampled_from(["replay", "append", "delete", "compact", "overwrite", "truncate"]),
    partition=st.integers(0, 1),
    files=st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple),
    low=st.integers(0, 30),
    width=st.integers(0, 9),
    new_committer=st.booleans(),
    who=st.integers(0, 1),
)
modes = st.sampled_from(["value", "row_incremental"])
merging = st.sampled_from(["2", "10000"])


@dataclass
class Model:
    """The table as a dict: (partition, name, level) → range of keys; and every file that was ever
    there.
    """

    live: dict[tuple[int, str, int], tuple[int, int]] = field(default_factory=dict)
    ever: set[tuple[int, str, int]] = field(default_factory=set)

    def conflicts(
        self,
        added: dict[tuple[int, str, int], tuple[int, int]],
        removed: list[tuple[int, str, int]],
    ) -> bool | None:
        """Whether these changes do not fit. None: they bring back what was removed, which is
        refused for as long as a manifest still says so.
        """
        if len(set(removed)) < len(removed) or set(removed) & added.keys():
            return True
        if not set(removed) <= self.live.keys() or added.keys() & self.live.keys():
            return True
        left = {key: span for key, span in self.live.items() if key not in removed} | added
        overlap = any(
            (p, level) == (q, other) and level > 0 and name < another and a <= d and c <= b
            for (p, name, level), (a, b) in left.items()
            for (q, another, other), (c, d) in left.items()
            if any((p, level) == (r, third) for r, _, third in added)
        )
        return True if overlap else None if added.keys() & self.ever else False

    def apply(
        self,
        added: dict[tuple[int, str, int], tuple[int, int]],
        removed: list[tuple[int, str, int]],
    ) -> None:
        for key in removed:
            del self.live[key]
        self.live.update(added)
        self.ever.update(added)


class Run:
    """The table and its model."""

    def __init__(self, mode: str, min_count: str) -> None:
        options = {
            "bucket": "1",
            "conflict-detection-mode": mode,
            "manifest.merge-min-count": min_count,
        }
        self.bench = Bench(partitioned=True, keys=("id", "dt"), options=options)
        self.model = Model()
        self.committers: dict[int, Committer] = {}
        self.number = 0

    def file(self, name: str, level: int, low: int, width: int) -> DataFileMeta:
        low_key, high_key = serialize(KEY, (low,)), serialize(KEY, (low + width,))
        return replace(data_file(name), level=level, min_key=low_key, max_key=high_key)

    def message(
        self, step: Step, added: list[DataFileMeta], removed: list[DataFileMeta]
    ) -> CommitMessage:
        made = self.bench.message("unused", dt=PARTITIONS[step.partition])
        for one in added:
            self.bench.message(one.file_name, dt=PARTITIONS[step.partition])
        if step.what == "compact":
            return replace(
                made, new_files=(), compact_before=tuple(removed), compact_after=tuple(added)
            )
        return replace(made, new_files=tuple(added), deleted_files=tuple(removed))

    def take(self, step: Step) -> None:
        self.number += 1
        if step.new_committer or step.who not in self.committers:
            self.committers[step.who] = self.bench.committer()
        committer, where = self.committers[step.who], step.partition
        names = [f"f{number}" for number in step.files]
        known = {
            name: span
            for (p, name, level), span in self.model.live.items()
            if (p, level) == (where, 0)
        }
        old = [self.file(name, 0, *_span(known.get(name, (0, 0)))) for name in names]
        removed: list[DataFileMeta] = []
        if step.what in ("overwrite", "truncate"):
            self.replace_partition(step, committer)
            return
        if step.what == "append":  # a fresh file: nobody ever uses its name again
            added = [self.file(f"n{self.number}", 0, step.low, step.width)]
        elif step.what == "replay":
            added = [self.file(name, 0, step.low, step.width) for name in names]
        elif step.what == "delete":
            added, removed = [], old
        else:  # an upgrade of one file to a level, or a rewrite of several
            name = names[0] if len(names) == 1 else f"c{self.number}"
            added, removed = [self.file(name, 5, step.low, step.width)], old
        request = self.bench.request(
            self.number,
            [self.message(step, added, removed)],
            user=f"u{step.who}",
            checked=step.what == "replay",
        )
        plus = {
            (where, one.file_name, one.level): (step.low, step.low + step.width) for one in added
        }
        minus = [(where, one.file_name, one.level) for one in removed]
        twice = len(added) > len(plus)
        expected = True if twice else self.model.conflicts(plus, minus)
        try:
            outcome = committer.commit(request)
            conflict = outcome.compact_failed if isinstance(outcome, Nothing) else None
        except CommitConflict as raised:
            conflict = raised
        assert expected is None or (conflict is not None) == expected, (step, conflict)
        if conflict is None:
            self.model.apply(plus, minus)
        elif isinstance(conflict, KeyRangeOverlap):
            assert step.what == "compact"

    def replace_partition(self, step: Step, committer: Committer) -> None:
        dt = PARTITIONS[step.partition] if step.what == "overwrite" else None
        gone = [key for key in self.model.live if dt is None or key[0] == step.partition]
        request = self.bench.overwriting(self.number, user=f"u{step.who}", dt=dt)
        assert isinstance(committer.commit(request), Published)
        self.model.apply({}, gone)

    def check(self) -> None:
        live = self.bench.live()
        dts = [deserialize((FIELDS[1].type,), entry.partition)[0] for entry in live]
        found = sorted(
            (PARTITIONS.index(dt), one.file.file_name, one.file.level)
            for dt, one in zip(dts, live, strict=True)
        )
        assert found == sorted(self.model.live)
        assert self.bench.orphans() == set()


def _span(span: tuple[int, int]) -> tuple[int, int]:
    return span[0], span[1] - span[0]


@settings(max_examples=examples(20, 400))
@given(st.lists(steps, max_size=14), modes, merging)
def test_conflicts_and_live_files_are_what_a_dict_of_files_says(
    history: list[Step], mode: str, min_count: str
) -> None:
    run = Run(mode, min_count)
    for step in history:
        run.take(step)
        run.check()
