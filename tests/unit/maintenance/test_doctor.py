"""The doctor and the sink agree: the doctor is asked about each scene first, then a real writer
judges it.

`Query` stands for Spark: a checkpoint folder, and the rule which batch comes next.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paimon_stream.api.doctor import Diagnosis, examine
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.errors import CorruptMetadata, InvalidOption, NotFound, PaimonStreamError
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import create_table
from tests.kits import steps
from tests.kits.commits import FIELDS, Bench
from tests.kits.hadoop_files import hadoop_on
from tests.kits.merging_streams import MergingStream
from tests.unit.change.test_update_rows import KINDS, made
from tests.unit.stream.test_merged_batch import ADD, added

VERDICTS = {Fresh: "fresh", Reuse: "reuse", AlreadyCommitted: "already committed"}


class PowerCut(BaseException):
    """What kills a run."""


@dataclass
class CutAt:
    """Kills the run at one point of one batch."""

    phase: Phase
    batch: int

    def reached(self, phase: Phase, identifier: int) -> None:
        if (phase, identifier) == (self.phase, self.batch):
            raise PowerCut


@dataclass
class Query:
    """A streaming query with one sink, and what a test does to it."""

    root: Path
    bench: Bench = field(default_factory=Bench)
    query_id: str = "q1"
    query_name: str | None = None
    user: str | None = None
    name: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    plans: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def commit_user(self) -> str:
        return self.user or f"paimon-stream_{self.query_id}" + (
            f"_{self.name}" if self.name else ""
        )

    # -- as Spark does it -------------------------------------------------------------------------

    def log(self, folder: str) -> list[int]:
        return sorted(int(one.name) for one in (self.checkpoint / folder).glob("*"))

    def begin(self) -> None:
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": self.query_id}))

    def next_batch(self) -> Batch:
        """Plans the next batch, unless one is planned and not done. Returns what the sink gets."""
        planned, done = self.log("offsets"), self.log("commits")
        number = 0 if not planned else planned[-1] + (planned[-1:] == done[-1:])
        offsets = self.checkpoint / "offsets" / str(number)
        if not offsets.exists():
            self.plans += 1
            offsets.write_text(f"v1\n{json.dumps({'batchTimestampMs': self.plans})}\n{{}}")
        checkpoint = open_checkpoint(str(self.checkpoint))
        return Batch(
            batch_id=number,
            offsets_hash=hashlib.sha256(offsets.read_bytes()).hexdigest(),
            previous_done_millis=checkpoint.last_done_millis(number),
        )

    def writer(self, observer: BatchObserver = NO_OBSERVER) -> StreamWriter:
        self.runs += 1
        identity = WriterIdentity(
            user=self.commit_user,
            query_id=self.query_id,
            run_id=f"{self.query_id}-run-{self.runs}",
            checkpoint=str(self.checkpoint),
            query_name=self.query_name,
            token="sink",
        )
        return StreamWriter(
            storage=self.bench.storage,
            identity=identity,
            options=self.options,
            runtime=self.bench.runtime,
            observer=observer,
        )

    def run(self, batches: int, observer: BatchObserver = NO_OBSERVER) -> None:
        """One run of some batches, one file each."""
        self.begin()
        writer = self.writer(observer)
        for _ in range(batches):
            batch = self.next_batch()
            name = f"data-{self.commit_user}-{self.runs}-{batch.batch_id}"
            new = Rows(write=lambda judged, name=name: judged.written((self.bench.message(name),)))  # type: ignore[misc]
            writer.write(batch, new)
            (self.checkpoint / "commits" / str(batch.batch_id)).write_text("v1\n{}")

    def killed(self, phase: Phase, batch: int) -> None:
        with pytest.raises(PowerCut):
            self.run(batch + 1, CutAt(phase, batch))

    def forget(self, folder: str) -> None:
        (self.checkpoint / folder / str(self.log(folder)[-1])).unlink()

    # -- what happens to the table ----------------------------------------------------------------

    def foreign(self, identifier: int = 7) -> None:
        request = self.bench.request(
            identifier, [self.bench.message(f"java-{identifier}")], user="java"
        )
        self.bench.committer().commit(request)

    def expire_ours(self) -> None:
        self.foreign()
        self.bench.expire(self.bench.latest().id - 1)

    def roll_back_to(self, snapshot_id: int) -> None:
        self.bench.storage.write("snapshot/LATEST", str(snapshot_id).encode())
        for one in self.bench.snapshots.ids():
            if one > snapshot_id:
                self.bench.storage.delete(f"snapshot/snapshot-{one}")

    def replace_table(self) -> None:
        wipe(self.bench.storage)
        self.bench.clock.advance(1000)
        assert create_table(self.bench.storage, FIELDS, runtime=self.bench.runtime) is not None

    # -- asked and judged -------------------------------------------------------------------------

    def ask(self) -> Diagnosis:
        (diagnosis,) = examine(
            self.bench.storage,
            checkpoint=str(self.checkpoint),
            user=self.user,
            names=(self.name,) if self.name else (),
            query_name=self.query_name,
            options=self.options,
            runtime=self.bench.runtime,
        )
        return diagnosis

    def judged(self) -> str:
        self.begin()
        try:
            return VERDICTS[type(steps.judge(self.writer(), self.next_batch()).verdict)]
        except PaimonStreamError as error:
            return type(error).__name__


def contents(storage: Storage, folder: str = "") -> dict[str, bytes]:
    found = {stat.path: storage.read(stat.path) for stat in storage.list_files(folder)}
    for name in storage.list_folders(folder):
        found.update(contents(storage, f"{folder}/{name}" if folder else name))
    return found


def wipe(storage: Storage, folder: str = "") -> None:
    for path in contents(storage, folder):
        storage.delete(path)


# -- scenes: what happened before the restart -----------------------------------------------------


def nothing(q: Query) -> None:
    pass


def three_batches(q: Query) -> None:
    q.run(3)


def last_batch_not_noted(q: Query) -> None:
    q.run(2)
    q.forget("commits")


def not_noted_and_expired(q: Query) -> None:
    last_batch_not_noted(q)
    q.expire_ours()


def not_noted_compacted_and_expired(q: Query) -> None:
    last_batch_not_noted(q)
    packed = q.bench.compaction(*q.bench.live_names(), into="packed")
    q.bench.committer().commit(q.bench.request(0, [packed], user="compactor"))
    q.expire_ours()


def expired(q: Query) -> None:
    q.run(2)
    q.expire_ours()


def expired_without_a_journal(q: Query) -> None:
    q.options["paimon-stream.journal"] = "false"
    expired(q)


def let_expired_history_continue(q: Query) -> None:
    expired_without_a_journal(q)
    q.options["paimon-stream.on-unknown-history"] = "continue"


def killed_before_publishing(q: Query) -> None:
    q.killed(Phase.STAGED, 1)


def killed_long_ago(q: Query) -> None:
    q.killed(Phase.STAGED, 1)
    q.bench.clock.advance(13 * 3_600_000)


def killed_and_its_files_gone(q: Query) -> None:
    q.killed(Phase.STAGED, 1)
    q.bench.storage.delete("bucket-0/data-paimon-stream_q1-1-1")


def killed_after_publishing(q: Query) -> None:
    q.killed(Phase.PUBLISHED, 1)


def killed_while_writing(q: Query) -> None:
    q.killed(Phase.JUDGED, 1)


def prepared_and_the_base_expired(q: Query) -> None:
    q.killed(Phase.JOURNALED, 1)
    q.foreign(6)
    q.expire_ours()


def wiped_checkpoint(q: Query) -> None:
    q.run(2)
    shutil.rmtree(q.checkpoint)
    q.query_id = "q2"


def wiped_and_started_again(q: Query) -> None:
    wiped_checkpoint(q)
    q.begin()


def let_a_wiped_checkpoint_continue(q: Query) -> None:
    wiped_and_started_again(q)
    q.options["paimon-stream.on-checkpoint-reset"] = "continue"


def new_query_of_the_same_name(q: Query) -> None:
    q.query_name = "orders"
    q.run(1)
    shutil.move(q.checkpoint, q.root / "elsewhere")
    q.root, q.query_id = q.root / "new", "q2"
    q.begin()


def given_user_of_another_query(q: Query) -> None:
    q.user = "etl"
    q.run(2)
    q.root, q.query_id = q.root / "b", "q2"
    q.begin()


def rewound_by_one(q: Query) -> None:
    q.run(3)
    q.forget("commits")
    q.forget("offsets")


def rewound_by_two(q: Query) -> None:
    rewound_by_one(q)
    q.forget("commits")
    q.forget("offsets")


def the_offsets_of_the_last_batch_changed(q: Query) -> None:
    q.run(2)
    q.forget("commits")
    (q.checkpoint / "offsets" / "1").write_text('v1\n{"batchTimestampMs": 99}\n{}')


def replaced_table(q: Query) -> None:
    """The new table is younger than what Spark has done."""
    q.run(2)
    q.replace_table()
    q.bench.storage.write("schema/schema-0", later(q.bench.storage.read("schema/schema-0")))


def replaced_table_and_only_an_old_batch_noted(q: Query) -> None:
    """The same, and an older copy of the checkpoint was put back, in which a run that was alive has
    planned the newest batch.
    """
    q.run(4)
    for _ in range(3):
        q.forget("commits")
    q.replace_table()
    q.bench.storage.write("schema/schema-0", later(q.bench.storage.read("schema/schema-0")))


def later(schema: bytes) -> bytes:
    return json.dumps({**json.loads(schema), "timeMillis": 4_000_000_000_000}).encode()


def rolled_back(q: Query) -> None:
    q.run(2)
    q.roll_back_to(1)


def rolled_back_by_the_batch_that_comes_again(q: Query) -> None:
    q.run(2)
    q.roll_back_to(1)
    q.forget("commits")


def rolled_back_to_before_the_stream(q: Query) -> None:
    q.foreign()
    q.run(2)
    q.roll_back_to(1)


def renamed_sink(q: Query) -> None:
    q.run(2)
    q.forget("commits")
    q.name = "second"


def another_sink_later(q: Query) -> None:
    q.run(2)
    q.name = "second"


def broken_register(q: Query) -> None:
    q.run(1)
    q.bench.storage.write("_paimon_stream/paimon-stream_q1/writer", b"nonsense")


def broken_journal(q: Query) -> None:
    q.run(1)
    q.bench.storage.write("_paimon_stream/paimon-stream_q1/0", b"nonsense")


def broken_snapshot(q: Query) -> None:
    q.run(2)
    q.bench.storage.write("snapshot/snapshot-2", b"{")


def unsupported_table(q: Query) -> None:
    q.run(1)
    schema = json.loads(q.bench.storage.read("schema/schema-0"))
    altered = {**schema, "id": 1, "options": {"data-evolution.enabled": "true"}}
    q.bench.storage.write("schema/schema-1", json.dumps(altered).encode())


def batches_of_two_runs(q: Query) -> None:
    q.run(2)
    q.run(1)


def rolled_back_by_us(q: Query) -> None:
    q.run(3)
    rollback_to(q.bench.table, 1, runtime=q.bench.runtime)


def rolled_back_by_us_and_expired(q: Query) -> None:
    rolled_back_by_us(q)
    for number in (7, 8, 9):
        q.foreign(number)
    q.expire_ours()


def let_a_rollback_continue(q: Query) -> None:
    rolled_back_by_us_and_expired(q)
    q.options["paimon-stream.on-table-change"] = "continue"
    q.run(1)
    del q.options["paimon-stream.on-table-change"]


def rolled_back_by_us_and_the_note_is_damaged(q: Query) -> None:
    rolled_back_by_us_and_expired(q)
    (name,) = q.bench.storage.list_names("_paimon_stream", "removed.")
    q.bench.storage.write(f"_paimon_stream/{name}", b"nonsense")


def expired_and_forgotten(q: Query) -> None:
    """Nothing of the stream is left: its snapshots have expired, and its notes were deleted."""
    expired(q)
    wipe(q.bench.storage, "_paimon_stream")


def renamed_before_anything_was_noted(q: Query) -> None:
    """The first batch was published, and has expired, and the sink gets a name."""
    q.killed(Phase.PUBLISHED, 0)
    q.expire_ours()
    q.name = "etl"


SCENES: Mapping[Callable[[Query], None], str] = {
    nothing: "fresh",
    three_batches: "fresh",
    batches_of_two_runs: "fresh",
    last_batch_not_noted: "already committed",
    killed_after_publishing: "already committed",
    not_noted_and_expired: "already committed",
    not_noted_compacted_and_expired: "HistoryUnknown",
    expired: "fresh",
    killed_before_publishing: "reuse",
    killed_while_writing: "fresh",
    killed_long_ago: "fresh",
    killed_and_its_files_gone: "fresh",
    prepared_and_the_base_expired: "HistoryUnknown",
    expired_without_a_journal: "HistoryUnknown",
    let_expired_history_continue: "fresh",
    wiped_checkpoint: "CheckpointReset",
    wiped_and_started_again: "CheckpointReset",
    let_a_wiped_checkpoint_continue: "fresh",
    new_query_of_the_same_name: "CheckpointReset",
    given_user_of_another_query: "CheckpointReset",
    rewound_by_one: "CheckpointRewound",
    rewound_by_two: "CheckpointRewound",
    the_offsets_of_the_last_batch_changed: "CheckpointRewound",
    replaced_table: "TableReplaced",
    replaced_table_and_only_an_old_batch_noted: "TableReplaced",
    rolled_back: "TableRolledBack",
    rolled_back_by_the_batch_that_comes_again: "reuse",
    rolled_back_to_before_the_stream: "TableRolledBack",
    renamed_sink: "HistoryUnknown",
    another_sink_later: "fresh",
    broken_register: "CorruptMetadata",
    broken_journal: "CorruptMetadata",
    broken_snapshot: "CorruptMetadata",
    unsupported_table: "UnsupportedFeature",
    rolled_back_by_us: "TableRolledBack",
    rolled_back_by_us_and_expired: "TableRolledBack",
    let_a_rollback_continue: "fresh",
    rolled_back_by_us_and_the_note_is_damaged: "TableRolledBack",
    expired_and_forgotten: "HistoryUnknown",
    renamed_before_anything_was_noted: "HistoryUnknown",
}


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_doctor_says_what_the_sink_then_judges_and_changes_nothing(
    query: Query, scene: Callable[[Query], None]
) -> None:
    scene(query)
    before = contents(query.bench.storage)
    files, metadata = sorted(query.root.rglob("*")), query.checkpoint / "metadata"
    diagnosis = query.ask()
    assert contents(query.bench.storage) == before
    assert sorted(query.root.rglob("*")) == files
    assert diagnosis.verdict == query.judged() == SCENES[scene], diagnosis
    lets_in = diagnosis.verdict in VERDICTS.values()
    assert diagnosis.safe == (lets_in and not diagnosis.notes and metadata in files)
    assert diagnosis.explanation
    assert (diagnosis.cure is None) == (lets_in and metadata in files)


def test_what_is_known_of_the_stream_is_reported(query: Query) -> None:
    query.run(2)
    query.foreign()
    diagnosis = query.ask()
    assert (diagnosis.user, diagnosis.query_id, diagnosis.checkpoint) == (
        "paimon-stream_q1",
        "q1",
        str(query.checkpoint),
    )
    assert (diagnosis.batch, diagnosis.replayed) == (2, False)
    assert (diagnosis.last_batch, diagnosis.last_snapshot) == (1, 2)
    assert diagnosis.last_millis == query.bench.snapshots.get(2).time_millis


def test_a_refusal_says_which_option_decides_and_what_to_do(query: Query) -> None:
    rewound_by_one(query)
    diagnosis = query.ask()
    assert diagnosis.option == "paimon-stream.on-checkpoint-reset"
    assert "checkpoint" in (diagnosis.cure or "")
    assert (
        "holds batch 2" in diagnosis.explanation or "other source offsets" in diagnosis.explanation
    )


def test_what_an_option_lets_pass_is_noted_and_is_not_called_safe(query: Query) -> None:
    let_a_wiped_checkpoint_continue(query)
    diagnosis = query.ask()
    assert not diagnosis.safe
    assert diagnosis.notes[0].startswith("CheckpointReset is passed over")


def test_without_a_checkpoint_every_registered_stream_is_asked_about_with_its_own(
    query: Query,
) -> None:
    query.run(1)
    other = replace(query, root=query.root / "other", query_id="q2")
    other.run(2)
    first, second = examine(query.bench.storage, runtime=query.bench.runtime)
    assert (first.query_id, first.batch, first.verdict) == ("q1", 1, "fresh")
    assert (second.query_id, second.batch, second.verdict) == ("q2", 2, "fresh")
    (only,) = examine(query.bench.storage, user="paimon-stream_q2", runtime=query.bench.runtime)
    assert only == second


def test_a_local_checkpoint_is_looked_for_on_the_disk_though_hadoops_default_is_hdfs(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The register has the path of a checkpoint that Spark was given as file:/path."""
    query.run(2)
    hadoop_on(query.root, "hdfs://127.0.0.1:9", monkeypatch)
    (diagnosis,) = examine(query.bench.storage, runtime=query.bench.runtime)
    assert (diagnosis.verdict, diagnosis.batch) == ("fresh", 2), diagnosis


def test_a_registered_stream_whose_checkpoint_is_gone_is_judged_as_the_sink_will(
    query: Query,
) -> None:
    query.run(2)
    shutil.rmtree(query.checkpoint)
    (diagnosis,) = examine(query.bench.storage, runtime=query.bench.runtime)
    assert (diagnosis.verdict, diagnosis.safe, diagnosis.batch) == ("CheckpointReset", False, 0)
    assert "There is no checkpoint at" in diagnosis.explanation
    assert (diagnosis.last_batch, diagnosis.last_snapshot, diagnosis.last_query_id) == (1, 2, "q1")


def test_a_stream_whose_checkpoint_cannot_be_read_is_unknown_and_not_called_safe(
    query: Query,
) -> None:
    query.run(1)
    shutil.rmtree(query.checkpoint)
    query.checkpoint.write_text("a file")
    (diagnosis,) = examine(query.bench.storage, runtime=query.bench.runtime)
    assert (diagnosis.verdict, diagnosis.safe, diagnosis.batch) == ("unknown", False, None)
    assert (diagnosis.last_batch, diagnosis.last_snapshot) == (0, 1)
    (diagnosis,) = examine(
        query.bench.storage, checkpoint="hdfs://name/ck", runtime=query.bench.runtime
    )
    assert (diagnosis.verdict, diagnosis.checkpoint) == ("unknown", "hdfs://name/ck")


def shifted(query: Query, **changes: object) -> None:
    """Another writer alters the table: a new schema."""
    storage = query.bench.storage
    schema = json.loads(storage.read("schema/schema-0"))
    storage.write("schema/schema-1", json.dumps({**schema, "id": 1, **changes}).encode())


def diagnosis_of(query: Query, checkpoint: Path | str) -> Diagnosis:
    (diagnosis,) = examine(
        query.bench.storage, checkpoint=str(checkpoint), runtime=query.bench.runtime
    )
    return diagnosis


def test_a_folder_that_is_not_there_is_no_checkpoint_and_the_known_one_is_named(
    query: Query,
) -> None:
    query.run(2)
    diagnosis = diagnosis_of(query, query.root / "typo")
    assert not diagnosis.safe
    assert f"There is no checkpoint at {query.root / 'typo'}" in diagnosis.explanation
    assert [one.checkpoint for one in diagnosis.known] == [str(query.checkpoint)]
    assert (diagnosis.known[0].last_batch, diagnosis.known[0].last_snapshot) == (1, 2)


def test_an_empty_folder_and_one_of_something_else_are_no_checkpoints(query: Query) -> None:
    query.run(1)
    (query.root / "empty").mkdir()
    (query.root / "other").mkdir()
    (query.root / "other" / "notes.txt").write_text("x")
    assert "is empty" in diagnosis_of(query, query.root / "empty").explanation
    assert (
        "not a checkpoint: it has no file named metadata"
        in diagnosis_of(query, query.root / "other").explanation
    )
    assert not diagnosis_of(query, query.root / "empty").safe
    assert not diagnosis_of(query, query.root / "other").safe


def test_a_file_is_no_checkpoint(query: Query) -> None:
    query.run(1)
    diagnosis = diagnosis_of(query, query.checkpoint / "metadata")
    assert (diagnosis.verdict, diagnosis.safe) == ("unknown", False)
    assert "is a file, not a folder" in diagnosis.explanation


@pytest.mark.parametrize("damaged", ["metadata", "offsets/1", "commits/1"])
def test_a_file_that_a_power_cut_left_empty_is_named(query: Query, damaged: str) -> None:
    query.run(2)
    (query.checkpoint / damaged).write_bytes(b"")
    diagnosis = diagnosis_of(query, query.checkpoint)
    assert (diagnosis.verdict, diagnosis.safe) == ("unknown", False)
    assert f"{query.checkpoint}/{damaged} is missing, empty or damaged" in diagnosis.explanation


@pytest.mark.parametrize(
    ("empty", "named"), [("3", True), ("2.compact", True), ("1", False), (None, False)]
)
def test_an_empty_record_of_what_a_source_gave_is_named_if_spark_reads_it(
    query: Query, empty: str | None, named: bool
) -> None:
    query.run(2)
    records = query.checkpoint / "sources" / "0"
    records.mkdir(parents=True)
    for name in ("0", "1", "2.compact", "3"):
        (records / name).write_text("v1\n{}")
    if empty is not None:
        (records / empty).write_bytes(b"")
    diagnosis = query.ask()
    assert diagnosis.safe is not named
    assert (f"{records}/{empty} is missing, empty or damaged" in diagnosis.explanation) == named
    assert (diagnosis.cure is not None and "what the source gave" in diagnosis.cure) == named


def test_the_cure_of_a_damaged_commit_file_lets_the_sink_skip_the_batch(query: Query) -> None:
    query.run(3)
    (query.checkpoint / "commits" / "2").write_bytes(b"")
    cure = query.ask().cure
    assert (
        cure is not None
        and "Remove only this file, commits/2, and its checksum, commits/.2.crc" in cure
    )
    (query.checkpoint / "commits" / "2").unlink()
    assert (query.ask().verdict, query.ask().safe) == ("already committed", True)
    assert query.judged() == "already committed"


def test_damaged_offsets_are_removed_only_if_the_table_does_not_hold_the_batch(
    query: Query,
) -> None:
    query.run(2)
    query.next_batch()
    (query.checkpoint / "offsets" / "2").write_bytes(b"")
    cure = query.ask().cure
    assert (
        cure is not None and "remove offsets/2 and commits/2, and their checksums, .2.crc" in cure
    )
    (query.checkpoint / "offsets" / "2").unlink()
    assert (query.ask().verdict, query.ask().safe) == ("fresh", True)
    assert query.judged() == "fresh"


@pytest.mark.parametrize(
    ("batch", "content"),
    [(1, None), (1, b""), (1, b"v1\n"), (2, b""), (2, b"v1\n"), (2, b"v1\n{}\n")],
)
def test_offsets_without_which_spark_cannot_start_are_named(
    query: Query, batch: int, content: bytes | None
) -> None:
    query.run(3)
    offsets = query.checkpoint / "offsets" / str(batch)
    offsets.unlink()
    if content is not None:
        offsets.write_bytes(content)
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("unknown", False)
    assert f"{offsets} is missing, empty or damaged" in diagnosis.explanation
    assert diagnosis.cure is not None and ("where batch 2 begins" in diagnosis.cure) == (batch == 1)


def test_a_checkpoint_in_which_spark_recorded_only_some_batches_is_not_safe(query: Query) -> None:
    """As asynchronous progress tracking does, which Spark refuses for foreachBatch."""
    query.run(6)
    for batch in (2, 4, 5):
        for folder in ("offsets", "commits"):
            (query.checkpoint / folder / str(batch)).unlink()
    diagnosis = query.ask()
    assert not diagnosis.safe
    assert f"{query.checkpoint}/offsets/2 is missing" in diagnosis.explanation
    (query.checkpoint / "offsets" / "2").write_bytes(
        (query.checkpoint / "offsets" / "1").read_bytes()
    )
    assert (query.ask().verdict, query.ask().safe) == ("CheckpointRewound", False)
    assert query.judged() == "CheckpointRewound"


def test_a_checkpoint_without_its_metadata_is_not_safe(query: Query) -> None:
    query.run(2)
    (query.checkpoint / "metadata").unlink()
    diagnosis = diagnosis_of(query, query.checkpoint)
    assert (diagnosis.verdict, diagnosis.safe, diagnosis.batch) == ("CheckpointReset", False, 2)
    assert "lacks its file named metadata" in diagnosis.explanation


@pytest.mark.parametrize("expired", [False, True])
def test_the_checkpoint_of_a_stream_into_another_table_is_reported_and_never_let_in(
    query: Query, expired: bool
) -> None:
    query.run(2)
    other = Query(query.root / "other", query_id="q9")
    other.run(3)
    if expired:
        query.expire_ours()
    diagnosis = diagnosis_of(query, other.checkpoint)
    assert not diagnosis.safe
    assert diagnosis.verdict == ("HistoryUnknown" if expired else "fresh")
    assert (
        "query q9, which has done its batches up to 2 and has left no trace"
        in diagnosis.explanation
    )
    assert [one.checkpoint for one in diagnosis.known] == [str(query.checkpoint)]
    cure = diagnosis.cure or ""
    assert "add rows that do not belong to this table" in cure
    assert diagnosis.option == ("paimon-stream.on-unknown-history" if expired else None)
    assert ("Do not let it continue" in cure) is not expired


def test_a_stream_of_which_nothing_is_left_is_told_what_the_sink_says(query: Query) -> None:
    expired_and_forgotten(query)
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.option) == (
        "HistoryUnknown",
        "paimon-stream.on-unknown-history",
    )
    assert "a stream into another table, or " in diagnosis.explanation
    assert "its notes in _paimon_stream were deleted" in diagnosis.explanation
    assert "no snapshot of this stream or journal of this batch is left" in diagnosis.explanation
    assert "Look for the rows of the batch" in (diagnosis.cure or "")
    assert "'paimon-stream.on-unknown-history': 'continue'" in (diagnosis.cure or "")
    query.options["paimon-stream.on-unknown-history"] = "continue"
    allowed = query.ask()
    assert (allowed.verdict, allowed.safe) == ("fresh", False)
    assert allowed.notes[0].startswith("HistoryUnknown is passed over")
    assert query.judged() == "fresh"


def test_what_a_rollback_took_from_a_stream_is_shown_also_after_it_went_on(query: Query) -> None:
    query.run(1)
    assert query.ask().history == ()
    rolled_back_by_us(query)
    stopped = query.ask()
    (text,) = stopped.history
    assert text.startswith(
        "A rollback to snapshot 1 has removed batches 1 to 3 of this stream (snapshots 2 to 4) at "
    )
    query.options["paimon-stream.on-table-change"] = "continue"
    query.run(1)
    del query.options["paimon-stream.on-table-change"]
    assert query.ask().history == stopped.history
    assert query.ask().safe


@pytest.mark.parametrize("journal", [True, False])
def test_a_table_that_was_put_back_from_an_older_copy_is_said_and_is_no_alarm(
    query: Query, journal: bool
) -> None:
    """All records lie in the table's folder, so the gap looks like batches without rows."""
    query.options["paimon-stream.journal"] = str(journal).lower()
    query.run(2)
    assert query.ask().history == ()
    copy = contents(query.bench.storage)
    query.run(2)
    wipe(query.bench.storage)
    for path, data in copy.items():
        query.bench.storage.write(path, data)
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", True)
    (text,) = diagnosis.history
    assert text.startswith(
        "the checkpoint records batches 2 to 3 as done, but no snapshot and no journal"
    )
    assert "restored from an older copy" in text


def test_a_note_of_removed_snapshots_that_cannot_be_read_is_shown(query: Query) -> None:
    query.run(1)
    query.bench.storage.write("_paimon_stream/removed.1-a.json", b"nonsense")  # no snapshot is gone
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", True)
    assert "_paimon_stream/removed.1-a.json cannot be trusted" in diagnosis.history[0]


@pytest.mark.parametrize("which", ["base_manifest_list", "delta_manifest_list"])
def test_a_newest_snapshot_without_a_manifest_list_is_noted_and_is_not_called_safe(
    query: Query, which: str
) -> None:
    query.run(2)
    path = f"manifest/{getattr(query.bench.latest(), which)}"
    query.bench.storage.delete(path)
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", False)
    (note,) = diagnosis.notes
    assert note.startswith("No batch with rows can be committed above snapshot 2: ")
    assert f"{path} is missing" in note
    with pytest.raises(CorruptMetadata, match=f"{path} is missing"):
        query.run(1)


def test_other_commit_users_of_the_query_are_shown(query: Query) -> None:
    query.run(1)
    other = replace(query, root=query.root / "other", query_id="q9", runs=20)
    other.run(1)
    second = replace(query, name="second", runs=10)
    second.run(1)
    first, last = examine(
        query.bench.storage, checkpoint=str(query.checkpoint), runtime=query.bench.runtime
    )
    assert first.other_users == ("paimon-stream_q1_second",)
    assert last.other_users == ("paimon-stream_q1",)
    assert (first.safe, last.safe) == (True, True)
    assert other.ask().other_users == ()


def test_a_commit_user_beside_the_checkpoint_of_another_stream_is_never_let_in(
    query: Query,
) -> None:
    query.user = "etl"
    query.run(2)
    other = replace(query, root=query.root / "other", query_id="q9", user=None, runs=20)
    other.run(2)
    other.user = "etl"
    diagnosis = other.ask()
    assert (diagnosis.verdict, diagnosis.option) == ("CheckpointReset", None)
    assert other.judged() == "CheckpointReset"
    cure = diagnosis.cure or ""
    assert "'continue'" not in cure and "Do not let this query continue" in cure
    assert f"give {query.checkpoint}" in cure
    assert "commit user 'paimon-stream_q9'" in cure


def test_a_commit_user_beside_the_checkpoint_of_another_tables_stream_is_never_let_in(
    query: Query,
) -> None:
    query.user = "etl"
    query.run(2)
    other = Query(query.root / "other", query_id="q9", user="etl")
    other.run(2)
    other.bench = query.bench
    diagnosis = other.ask()
    assert (diagnosis.verdict, diagnosis.option) == ("CheckpointReset", None)
    assert "'continue'" not in (diagnosis.cure or "")
    assert "Do not let it continue" in (diagnosis.cure or "")
    assert f"give {query.checkpoint}" in (diagnosis.cure or "")


def test_the_old_name_of_a_renamed_sink_is_named_before_the_option(query: Query) -> None:
    renamed_before_anything_was_noted(query)
    diagnosis = query.ask()
    assert diagnosis.option == "paimon-stream.on-unknown-history"
    assert (diagnosis.cure or "").startswith(
        "This query wrote here as commit user 'paimon-stream_q1'. If that is this sink, give it that name or commit user"
    )
    assert diagnosis.other_users == ("paimon-stream_q1",)


@pytest.mark.parametrize("noted", [True, False])
def test_a_new_prefix_is_judged_beside_the_registered_users(query: Query, noted: bool) -> None:
    """Also without names: the sink will have the prefix that is given."""
    query.run(2)
    if not noted:
        (query.checkpoint / "commits" / "1").unlink()
    ck, options = str(query.checkpoint), {"commit.user-prefix": "etl"}

    def asked() -> list[tuple[str, str]]:
        found = examine(
            query.bench.storage, checkpoint=ck, options=options, runtime=query.bench.runtime
        )
        return [(one.user, one.verdict) for one in found]

    query.options = options
    before = ("paimon-stream_q1", "fresh" if noted else "already committed")
    verdict = "fresh" if noted else "HistoryUnknown"
    assert asked() == [before, ("etl_q1", verdict)]
    query.user = "etl_q1"
    assert query.judged() == verdict
    query.user = "etl_q1_named"
    query.judged()
    if noted:
        assert "etl_q1" in dict(asked())  # it is registered by now
        query.bench.storage.delete("_paimon_stream/etl_q1/writer")
        assert "etl_q1" not in dict(asked()), "the prefix is that of another sink"


def test_the_checkpoint_of_another_stream_of_the_table_is_refused_with_the_known_one(
    query: Query,
) -> None:
    query.user = "etl"
    query.run(2)
    other = Query(query.root / "other", query_id="q9", bench=query.bench, user="etl")
    other.begin()
    diagnosis = other.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("CheckpointReset", False)
    assert (diagnosis.cure or "").startswith(
        f"According to the table, the checkpoint of this stream is {query.checkpoint}"
    )


def test_after_a_wiped_checkpoint_the_last_batch_of_the_stream_is_named(query: Query) -> None:
    wiped_checkpoint(query)
    diagnosis = query.ask()
    assert (diagnosis.last_batch, diagnosis.last_snapshot, diagnosis.last_query_id) == (1, 2, "q1")
    query.begin()
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.query_id, diagnosis.last_query_id) == (
        "CheckpointReset",
        "q2",
        "q1",
    )
    assert (diagnosis.last_batch, diagnosis.last_snapshot) == (1, 2)


def test_a_stream_that_was_let_in_after_a_wiped_checkpoint_is_asked_about_alone(
    query: Query,
) -> None:
    wiped_checkpoint(query)
    query.options["paimon-stream.on-checkpoint-reset"] = "continue"
    query.run(1)
    (diagnosis,) = examine(query.bench.storage, runtime=query.bench.runtime)
    assert (diagnosis.query_id, diagnosis.safe) == ("q2", True)


def test_a_renamed_column_is_reported_as_the_sink_will_refuse_it(query: Query) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark")
    query.run(2)
    fields = json.loads(query.bench.storage.read("schema/schema-0"))["fields"]
    shifted(query, fields=[{**fields[0], "name": "key"}, fields[1]])
    diagnosis = diagnosis_of(query, query.checkpoint)
    assert (diagnosis.verdict, diagnosis.safe) == ("IncompatibleSchema", False)
    assert "has changed since batch 1, from 0 to 1" in diagnosis.explanation
    assert "the table has no column 'id'" in diagnosis.explanation


def test_a_renamed_column_that_the_sink_would_add_again_is_noted(query: Query) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark")
    query.run(2)
    query.options["paimon-stream.merge-schema"] = "add"
    query.options["paimon-stream.missing-columns"] = "null"
    fields = json.loads(query.bench.storage.read("schema/schema-0"))["fields"]
    shifted(query, fields=[{**fields[0], "name": "key"}, fields[1]], highestFieldId=1)
    diagnosis = query.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", False)
    assert "adds these columns again if the query still has them: id" in diagnosis.notes[0]


def test_a_wider_column_and_an_option_are_no_obstacle(query: Query) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark")
    query.run(2)
    fields = json.loads(query.bench.storage.read("schema/schema-0"))["fields"]
    shifted(query, fields=[{**fields[0], "type": "DECIMAL(20, 0)"}, fields[1]], comment="new")
    assert diagnosis_of(query, query.checkpoint).safe


def test_another_number_of_buckets_is_noted(query: Query) -> None:
    query.run(1)
    shifted(query, options={"bucket": "4", "bucket-key": "id"})
    diagnosis = diagnosis_of(query, query.checkpoint)
    assert not diagnosis.safe
    assert "bucket was -1 and is now 4" in diagnosis.notes[0]


def test_a_changed_schema_without_a_snapshot_of_the_stream_is_not_judged_and_not_called_safe(
    query: Query,
) -> None:
    expired(query)
    shifted(query, timeMillis=4_000_000_000_000)
    diagnosis = diagnosis_of(query, query.checkpoint)
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", False)
    assert "Whether the columns of the query still fit is not known" in diagnosis.notes[0]


def test_a_mode_that_the_table_does_not_allow_is_reported(query: Query) -> None:
    query.run(1)
    (diagnosis,) = examine(query.bench.storage, checkpoint=str(query.checkpoint), mode="update")
    assert (diagnosis.verdict, diagnosis.safe) == ("UnsupportedFeature", False)


@pytest.fixture
def merging(tmp_path: Path) -> MergingStream:
    """A stream that merges, after its first batch. Another batch is planned."""
    stream = MergingStream(made(KINDS["vectors"], files=1), ADD)
    stream.batch(added(_3=1))
    for folder, numbers in (("offsets", (0, 1)), ("commits", (0,))):
        (tmp_path / folder).mkdir()
        for number in numbers:
            (tmp_path / folder / str(number)).write_text("v1\n{}\n{}")
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    return stream


def merging_diagnosis(stream: MergingStream, checkpoint: Path) -> Diagnosis:
    storage = stream.table._table.storage
    (diagnosis,) = examine(storage, checkpoint=str(checkpoint), user="me", mode="update")
    return diagnosis


def test_a_stream_that_merges_may_have_other_columns_and_the_mode_update(
    merging: MergingStream, tmp_path: Path
) -> None:
    schema = merging.table._table.schema
    *fields, note = schema.fields
    renamed = replace(schema, id=1, fields=(*fields, replace(note, name="remark")))
    merging.table._table.storage.put_if_absent("schema/schema-1", encode_schema(renamed))
    diagnosis = merging_diagnosis(merging, tmp_path)
    assert (diagnosis.verdict, diagnosis.safe, diagnosis.notes) == ("fresh", True, ())
    assert merging.batch(added(_3=1)).outcome == "committed"


def test_a_killed_merge_is_said_to_be_computed_anew(merging: MergingStream, tmp_path: Path) -> None:
    merging.start(CutAt(Phase.STAGED, 1))
    with pytest.raises(PowerCut):
        merging.batch(added(_3=1))
    diagnosis = merging_diagnosis(merging, tmp_path)
    assert (diagnosis.verdict, diagnosis.safe) == ("fresh", True)
    assert "a merge is always computed on the newest rows" in diagnosis.explanation
    merging.start()
    assert not merging.batch(added(_3=1)).reused


def test_all_sinks_of_a_query_are_asked_about(query: Query) -> None:
    query.run(1)
    let_in = {"paimon-stream.on-unknown-history": "continue"}
    second = replace(query, name="second", runs=10, options=let_in)
    second.forget("commits")
    second.run(1)
    diagnosis = examine(
        query.bench.storage, checkpoint=str(query.checkpoint), runtime=query.bench.runtime
    )
    assert [one.user for one in diagnosis] == ["paimon-stream_q1", "paimon-stream_q1_second"]
    assert {one.verdict for one in diagnosis} == {"fresh"}


@pytest.mark.parametrize("together", [True, False])
def test_a_return_to_an_old_name_that_would_stop_is_said_also_without_names(
    query: Query, together: bool
) -> None:
    """Unless the two users have been in one run: then they are two sinks."""
    query.run(2)
    renamed = replace(query, name="second", runs=query.runs - 1 if together else 10)
    renamed.run(1)
    (query.checkpoint / "commits" / "2").unlink()
    ck, runtime = str(query.checkpoint), query.bench.runtime
    first, second = examine(query.bench.storage, checkpoint=ck, runtime=runtime)
    assert (first.safe, second.safe) == (True, True)
    would_stop = (
        "no longer has a sink as 'paimon-stream_q1_second', this one stops: HistoryUnknown."
    )
    assert (would_stop in first.explanation) is not together
    assert "this one stops" not in second.explanation
    user = "paimon-stream_q1"
    (alone,) = examine(query.bench.storage, checkpoint=ck, user=user, runtime=runtime)
    assert alone.verdict == ("fresh" if together else "HistoryUnknown")


def test_a_new_sink_beside_one_that_wrote_the_batch_is_judged_in_the_order_of_the_names(
    query: Query,
) -> None:
    last_batch_not_noted(query)

    def verdicts(*names: str) -> list[str]:
        ck = str(query.checkpoint)
        diagnosis = examine(
            query.bench.storage, checkpoint=ck, names=names, runtime=query.bench.runtime
        )
        return [one.verdict for one in diagnosis]

    assert verdicts("", "second") == ["already committed", "fresh"]
    assert verdicts("second", "") == ["HistoryUnknown", "already committed"]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(NotFound):
        examine(MemoryStorage())
    storage = Bench().storage
    with pytest.raises(InvalidOption, match="checkpoint"):
        examine(storage, names=["second"])
    with pytest.raises(InvalidOption):
        examine(storage, options={"paimon-stream.nonsense": "1"})
    assert examine(storage) == ()


@pytest.mark.parametrize("left", ["everything", "no notes", "no batch noted"])
def test_the_checkpoint_of_one_stream_beside_the_user_of_another_is_never_let_in(
    query: Query, left: str
) -> None:
    query.user = "etl"
    query.run(2)
    other = replace(query, root=query.root / "b", query_id="q2", user=None)
    other.run(1)
    if left == "no notes":
        wipe(query.bench.storage, "_paimon_stream")
    elif left == "no batch noted":
        other.forget("commits")
    mixed = replace(other, user="etl")
    diagnosis = mixed.ask()
    assert (diagnosis.verdict, diagnosis.safe) == ("CheckpointReset", False)
    assert diagnosis.option is None
    assert "which writes here as commit user 'paimon-stream_q2'" in diagnosis.explanation
    assert "Do not let this query continue" in str(diagnosis.cure)
    assert "'continue'" not in f"{diagnosis.explanation} {diagnosis.cure}"


def test_the_cure_of_a_new_checkpoint_says_that_spark_reads_its_source_again(query: Query) -> None:
    wiped_and_started_again(query)
    diagnosis = query.ask()
    for advice in (str(diagnosis.cure), diagnosis.explanation):
        assert "Spark reads its source again: truncate the table first" in advice
        assert "checkpoint back" in advice
        assert advice.index("truncate the table first") < advice.index("'continue'")


def rewound(root: Path) -> Query:
    """A stream of four batches, whose checkpoint knows two of them."""
    query = Query(root)
    query.run(4)
    for folder in ("offsets", "commits", "offsets", "commits"):
        query.forget(folder)
    return query


def cure_for(query: Query) -> str:
    (diagnosis,) = examine(query.bench.storage, checkpoint=str(query.checkpoint))
    assert diagnosis.verdict == "CheckpointRewound"
    return diagnosis.cure or ""


def test_a_rewound_checkpoint_has_the_rollback_that_takes_the_table_back_to_it(
    tmp_path: Path,
) -> None:
    query = rewound(tmp_path)
    command = f"paimon-stream rollback --yes {query.bench.storage.location} 2`"
    assert command in cure_for(query)


def test_no_rollback_is_named_that_would_take_the_rows_of_others(tmp_path: Path) -> None:
    query = rewound(tmp_path)
    query.foreign()
    assert "rollback" not in cure_for(query)
