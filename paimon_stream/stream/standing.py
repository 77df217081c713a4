"""How a run stands between two batches. A batch begins with one `Standing` and ends with the next
one. A batch that fails leaves the run's standing as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import sink_options_among
from paimon_stream.stream.compacting import Compacted, compacts
from paimon_stream.stream.memory import Memory
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.writable import check_mergeable, check_writable, warn_of_sink_options
from paimon_stream.table.branch_identity import BranchIdentity
from paimon_stream.table.table import Table, load_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a run writes, and the committer for that table.

    Attributes:
        table: the table, with its newest schema.
        committer: publishes commits to the table.
        digest: the digest of the table's first schema when the run was admitted.
        branch: the identity of the branch when the run was admitted; None for main, and for a
            branch without an identity.
    """

    table: Table
    committer: Committer
    digest: str
    branch: BranchIdentity | None = None

    @classmethod
    def open(cls, run: StreamRun) -> "Target":
        """The table as it is now. Raises what `load_table` and `check_writable` raise."""
        load = partial(load_table, run.storage, run.options)
        table, digest = run.storage.together([load, run.schemas.first_digest])
        check_writable(table, in_stream=not run.overwrites)
        if run.merge is not None:
            check_mergeable(table, run.merge)
        return cls(table=table, committer=_committer(run, table, digest), digest=digest)

    def with_table(self, run: StreamRun, table: Table, digest: str) -> "Target":
        """This target with the schema of `table`. If the schema is the same, the committer is kept,
        with all that it has cached. `digest` is the digest of the table's first schema now.
        """
        if table.schema == self.table.schema:
            return self
        known_options = sink_options_among(self.table.schema.options)
        if sink_options_among(table.schema.options) != known_options:
            warn_of_sink_options(table)
        return replace(self, table=table, committer=_committer(run, table, digest))


def _committer(run: StreamRun, table: Table, digest: str) -> Committer:
    """The committer of the table. `digest` is the digest of the table's first schema."""
    return Committer(
        table,
        run.runtime,
        run.observer,
        run.snapshots,
        digest,
        compacts=compacts(table) and not run.overwrites,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What earlier runs of the stream, or of its query, may still bring about.

    Attributes:
        follows: whether an earlier run may still work on this run's batches.
        is_renamed: whether the sink may have written earlier batches under another name.
        goes_back: whether the journal has batches that the checkpoint runs again.
    """

    follows: bool = True
    is_renamed: bool = False
    goes_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that a run remembers between two batches.

    Attributes:
        memory: what the next batch is judged by; None if the run has finished no batch.
        target: the table; None if the run has finished no batch.
        outlook: what earlier runs may still bring about.
        newest: the last snapshot that this run has published.
        marks: the marks of the last batch that made a snapshot.
        last_report: the report of the last commit, for the properties of the next snapshot.
        conflicts: how many units of the compaction behind the last batch no longer fit.
        undisturbed: whether nobody else had committed between the last two batches.
    """

    memory: Memory | None = None
    target: Target | None = None
    outlook: Outlook = Outlook()
    newest: Snapshot | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    last_report: CommitReport | None = None
    conflicts: int = 0
    undisturbed: bool = True

    @property
    def known_target(self) -> Target:
        """The table that the run writes. Raises `ValueError` before its first batch."""
        if self.target is None:
            raise ValueError("no batch was judged yet")
        return self.target

    def behind(self, compacted: Compacted) -> "Standing":
        """How the run stands after the compaction behind its last batch. If the batch is run again,
        its judgement finds the compaction's snapshot. The run then remembers the batch's first
        snapshot, which has the rows.
        """
        standing = replace(self, conflicts=self.conflicts + compacted.lost)
        if compacted.published is None or self.memory is None:
            return standing
        newest = compacted.published.snapshot
        memory = replace(self.memory, seen=SnapshotRef.of(newest))
        return replace(standing, newest=newest, memory=memory)
