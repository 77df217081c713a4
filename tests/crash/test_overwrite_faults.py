"""Every storage operation of an overwrite fails in turn, and then the overwrite is repeated. The
old files are gone once, the new files are there once, and nothing else has changed. The same holds
for a stream whose batches replace the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from paimon_stream.commit.report import NO_OBSERVER, CommitReport, Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_write import WHOLE_TABLE
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.attempts import attempts
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.steps import Messages, run_batch

pytestmark = [pytest.mark.store, pytest.mark.s3]

BATCH = 7


@dataclass
class Case:
    """A table, the overwrite to come, and the files that are live without it and after it. With
    `raced` another writer appends a file to a partition that is replaced, while ours is staged.
    """

    bench: Bench
    spec: Mapping[str, Any] | None
    new: Sequence[tuple[str, str, int]]
    before: list[str]
    after: list[str]
    raced: bool = False
    total: int | None = None

    @property
    def messages(self) -> list[CommitMessage]:
        return [
            self.bench.message(name, dt=dt, bucket=bucket, total=self.total)
            for name, dt, bucket in self.new
        ]

    def reached(self, phase: Phase, identifier: int) -> None:
        if self.raced and phase is Phase.STAGED and not self.foreign():
            message = self.bench.message("foreign", dt="b")
            self.bench.committer().commit(self.bench.request(0, [message], user="other"))

    def foreign(self) -> bool:
        return any(one.commit_user == "other" for one in self.snapshots())

    def published(self) -> bool:
        return any(
            (one.commit_user, one.commit_identifier) == ("me", BATCH) for one in self.snapshots()
        )

    def snapshots(self) -> Iterator[Any]:
        return map(self.bench.snapshots.get, self.bench.snapshots.ids())

    def expected(self) -> list[str]:
        """What must be live now: another's append before ours is replaced too."""
        return (
            self.after
            if self.published()
            else [*self.before, *(["foreign"] if self.foreign() else [])]
        )

    def overwrite(self, storage: Storage | None = None) -> CommitReport:
        commit = TableCommit(
            self.bench.on(storage), "me", runtime=self.bench.runtime, observer=self
        )
        return commit.overwrite(self.spec, self.messages, BATCH)


def filled(options: Mapping[str, str] | None = None) -> Bench:
    """Partitions a, b and c with a file each, of three commits, the newest of them merged."""
    bench = Bench(partitioned=True, options={"manifest.merge-min-count": "2", **(options or {})})
    for number, dt in enumerate("abc"):
        bench.committer().commit(bench.request(number, [bench.message(dt, dt=dt)], user="old"))
    return bench


def dynamic() -> Case:
    return Case(
        filled(), None, [("n1", "b", 0), ("n2", "d", 0)], ["a", "b", "c"], ["a", "c", "n1", "n2"]
    )


def static() -> Case:
    return Case(filled(), {"dt": "b"}, [("n1", "b", 0)], ["a", "b", "c"], ["a", "c", "n1"])


def clearing() -> Case:
    return Case(filled(), {}, [], ["a", "b", "c"], [])


def rescaling() -> Case:
    bench = filled({"bucket": "2", "bucket-key": "id"})
    new = [("n1", "b", 0), ("n2", "b", 2)]
    return Case(bench, None, new, ["a", "b", "c"], ["a", "c", "n1", "n2"], total=3)


def raced() -> Case:
    case = dynamic()
    case.raced = True
    return case


CASES = [
    *((dynamic, fault) for fault in FAULTS),
    *((make, "killed after") for make in (static, clearing, rescaling)),
    (raced, "killed after"),
]


@pytest.mark.parametrize(("make", "fault"), CASES)
def test_an_overwrite_that_failed_anywhere_is_whole_or_absent_and_repeats(
    make: Callable[[], Case], fault: str
) -> None:
    for case, storage in attempts(make, FAULTS[fault]):
        failed = None
        try:
            case.overwrite(storage)
        except (PaimonStreamError, Killed) as why:
            failed = why
        case.bench.audit(case.expected())
        if failed is None:
            assert case.published()
        elif isinstance(failed, PaimonStreamError) and not isinstance(failed, CommitUnknown):
            assert not case.published(), f"{failed!r} says that nothing was published"

        again = case.overwrite()
        assert again.outcome == "committed" or failed is None or case.published()
        case.bench.audit(case.after)
        assert case.overwrite().outcome == "already committed"
        kinds = [one.commit_kind for one in case.snapshots() if one.commit_user == "me"]
        assert kinds == [CommitKind.OVERWRITE]


# -- a stream in complete mode
# ----------------------------------------------------------------------------


@dataclass
class Stream:
    """A stream whose every batch replaces the table, over a table with a stranger's file."""

    bench: Bench = field(default_factory=lambda: Bench(partitioned=True))
    runs: int = 0
    written: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench.committer().commit(
            self.bench.request(0, [self.bench.message("old", dt="a")], user="old")
        )

    def writer(self, storage: Storage | None, overwrites: bool = True) -> StreamWriter:
        self.runs += 1
        identity = WriterIdentity(
            user="me", query_id="q", run_id=f"r{self.runs}", token=f"t{self.runs}"
        )
        return StreamWriter(
            storage=storage or self.bench.storage,
            identity=identity,
            options={},
            replaced=WHOLE_TABLE if overwrites else None,
            runtime=self.bench.runtime,
            observer=NO_OBSERVER,
        )

    def run(
        self, batch_id: int, files: int, storage: Storage | None = None, **more: Any
    ) -> CommitReport:
        """One batch in a run of its own, with the same source rows each time."""
        writer = self.writer(storage, **more)
        batch = Batch(batch_id=batch_id, offsets_hash=f"offsets-{batch_id}")

        def written(judged: JudgedBatch) -> Messages:
            names = [f"run{self.runs}-batch{batch_id}-{n}" for n in range(files)]
            self.written[self.runs] = names
            return tuple(self.bench.message(name, dt="ab"[n % 2]) for n, name in enumerate(names))

        return run_batch(writer, batch, written)

    def batches(self) -> list[int]:
        snapshots = map(self.bench.snapshots.get, self.bench.snapshots.ids())
        return [one.commit_identifier for one in snapshots if one.commit_user == "me"]


@pytest.mark.parametrize(
    ("files", "fault"), [(2, "before"), (2, "killed after"), (0, "killed after")]
)
def test_a_batch_that_replaces_the_table_and_was_killed_anywhere_takes_effect_once(
    files: int, fault: str
) -> None:
    for stream, storage in attempts(Stream, FAULTS[fault], least=30):
        try:
            stream.run(0, files, storage)
        except (PaimonStreamError, Killed):
            live = stream.bench.live_names()
            assert live in (["old"], stream.written.get(1, [])), live
        report = stream.run(0, files)
        assert report.outcome in ("committed", "already committed")
        assert stream.batches() == [0]
        live = stream.bench.live_names()
        assert live in list(stream.written.values())
        stream.bench.audit(live)
        assert stream.run(0, files).outcome == "already committed"
        assert stream.run(1, 1).outcome == "committed"
        assert stream.batches() == [0, 1]
        stream.bench.audit(stream.written[stream.runs])


def test_files_prepared_for_an_append_are_not_used_for_an_overwrite() -> None:
    stream = Stream()
    storage = FaultyStorage(
        stream.bench.storage,
        [Fault(at=1, verb="put_if_absent", path="snapshot/snapshot-2", stop=True)],
    )
    with pytest.raises(Killed):
        stream.run(0, 1, storage, overwrites=False)
    report = stream.run(0, 2)
    assert (report.reused, report.outcome) == (False, "committed")
    assert stream.bench.live_names() == stream.written[2]


def test_an_empty_batch_whose_snapshot_may_have_expired_is_not_guessed_to_be_done() -> None:
    stream = Stream()
    storage = FaultyStorage(
        stream.bench.storage,
        [Fault(at=1, verb="put_if_absent", path="snapshot/snapshot-2", stop=True)],
    )
    with pytest.raises(Killed):
        stream.run(0, 0, storage)
    for number in range(1, 4):
        bench = stream.bench
        bench.committer().commit(
            bench.request(number, [bench.message(f"x{number}", dt="a")], user="old")
        )
    stream.bench.expire(3)
    with pytest.raises(PaimonStreamError, match="on-unknown-history"):
        stream.run(0, 0)
    assert stream.bench.live_names() == ["old", "x1", "x2", "x3"]
