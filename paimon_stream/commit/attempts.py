"""The state that the attempts to publish one snapshot share, and the limits on the number and time
of the attempts (semantics.md §2.7).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from paimon_stream import options as opt
from paimon_stream.commit.latest_hint import LatestHint
from paimon_stream.commit.request import ChangeSource, CommitRequest, Published
from paimon_stream.commit.staged import Staged
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    PaimonStreamError,
    SharedCheckpoint,
    TableReplaced,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from paimon_stream.runtime import Runtime
from paimon_stream.storage.together import Request
from paimon_stream.table.layout import NameSource
from paimon_stream.table.manifest_merge import Merged


@dataclass(slots=True, kw_only=True)
class RetryBudget:
    """The remaining retries and time of one snapshot. Each wait is twice as long as the one before,
    up to the longest wait. Up to a fifth is added at random, so that writers that collided do not
    collide again.

    Attributes:
        runtime: the clock and the random numbers.
        timeout: the longest time until a snapshot is published, in milliseconds.
        max_retries: the largest number of retries.
        min_wait: the first wait, in milliseconds.
        max_wait: the longest wait, in milliseconds.
        retries: how many retries there were.
    """

    runtime: Runtime
    timeout: int
    max_retries: int
    min_wait: int
    max_wait: int
    retries: int = field(default=0, init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @classmethod
    def of(cls, options: opt.Options, runtime: Runtime) -> "RetryBudget":
        """The budget with the limits in the table's options. Raises `InvalidOption`."""
        return cls(
            runtime=runtime,
            timeout=options.value(opt.COMMIT_TIMEOUT),
            max_retries=options.value(opt.COMMIT_MAX_RETRIES),
            min_wait=options.value(opt.COMMIT_MIN_RETRY_WAIT),
            max_wait=options.value(opt.COMMIT_MAX_RETRY_WAIT),
        )

    @property
    def elapsed_millis(self) -> float:
        """The milliseconds since the commit began."""
        return (self.runtime.clock.monotonic() - self._began) * 1000

    @property
    def exhausted(self) -> bool:
        """Whether there must be no further retry."""
        return self.retries >= self.max_retries or self.elapsed_millis > self.timeout

    def restart(self) -> None:
        """Starts the time again, because the process was paused. After a pause, a commit is not
        given up as if other writers had been faster.
        """
        self._began = self.runtime.clock.monotonic()

    def wait(self) -> None:
        """Waits before the next retry, and counts it."""
        millis = min(self.min_wait * 2 ** min(self.retries, 40), self.max_wait)
        millis += self.runtime.rng.below(max(1, millis // 5))
        self.retries += 1
        self.runtime.clock.sleep(millis / 1000)


@dataclass(frozen=True, slots=True)
class ReusableMerge:
    """A merge of manifests that the next attempt may also use.

    Attributes:
        merged: the merge.
        since_millis: when the staging that made the merge began, in epoch milliseconds.
    """

    merged: Merged
    since_millis: int


class Attempts:
    """What the commit of a snapshot remembers between attempts. Mutable, for one thread only.

    Attributes:
        request: what is committed.
        source: gives the changes of the snapshot.
        retry_budget: the remaining retries and time.
        names: gives the names of metadata files, and remembers the names that it gave.
        hint: points LATEST to the snapshot.
        seen: the latest snapshot that was searched for this commit. None in an empty table.
        count: the number of attempts so far, with the one under way.
        journal_requests: the requests of the journal step. Empty once they were sent.
        trim_requests: the request that trims the journal. Empty once it was sent.
        merge: the merge of an earlier attempt, until its manifests may be gone.
        nonces: the nonces of all attempts that were staged.
        outstanding: whether the outcome of a put is open.
        unproven: the attempts that were lost without a proof, until the proof is found.
        visible: the lost attempts whose snapshots were there for a while. Somebody may have tagged
            such a snapshot, or one that was built on it.
        aged_millis: the age of the newest staging if it was too old to be published.
        phases: the milliseconds of all attempts, by step.
    """

    def __init__(
        self,
        location: str,
        request: CommitRequest,
        source: ChangeSource,
        names: NameSource,
        retry_budget: RetryBudget,
        hint: LatestHint,
    ) -> None:
        self._location = location
        self.request = request
        self.source = source
        self.retry_budget = retry_budget
        self.names = names
        self.hint = hint
        self.seen = request.seen
        self.count = 0
        self.journal_requests: tuple[Request, ...] = ()
        self.trim_requests: tuple[Request, ...] = ()
        if request.send_files is not None:
            self.journal_requests = (request.send_files,)
        if request.journal is not None:
            self.journal_requests += (request.journal.record,)
            self.trim_requests = (request.journal.trim,)
        self.merge: ReusableMerge | None = None
        self.nonces: set[str] = set()
        self.outstanding = False
        self.unproven: list[Staged] = []
        self.visible: list[Staged] = []
        self.aged_millis: int | None = None
        self.phases: dict[str, float] = {}

    @property
    def may_be_published(self) -> bool:
        """Whether an attempt may be part of the table, or may still become part of it."""
        return self.outstanding or bool(self.unproven)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """A context that adds the time spent in its block to a phase."""
        clock = self.retry_budget.runtime.clock
        began = clock.monotonic()
        try:
            yield
        finally:
            spent = (clock.monotonic() - began) * 1000
            self.phases[phase] = self.phases.get(phase, 0.0) + spent

    def outcome_of(self, staged: Staged) -> Published:
        """The outcome if this attempt is part of the table."""
        published = Published(
            snapshot=staged.snapshot,
            attempts=self.count,
            phases=self.phases,
            manifests_merged=staged.merged.count,
        )
        if staged.snapshot.commit_kind is CommitKind.COMPACT:
            return replace(published, compact=staged.snapshot, compact_changes=staged.changes)
        return replace(published, changes=staged.changes)

    # -- errors -----------------------------------------------------------------------------------
    def contended(self) -> CommitContended:
        """The error for a commit that was given up. Nothing of the commit was published."""
        return CommitContended(
            f"{self._location}: {self._commit} was given up after {self.retry_budget.elapsed_millis:.0f} ms and "
            f"{self.count} attempts: other writers were faster each time, or this one was paused. Nothing "
            "was published, and it is safe to try again. With many writers raise 'commit.max-retries' or "
            "'commit.timeout', or let fewer of them commit.",
            **self.facts(),
            attempts=self.count,
        )

    def aged(self, limit_millis: int, option: str) -> CommitContended:
        """The error for a commit whose staging took longer than `limit_millis` in each attempt.
        `option` is the option that sets this limit.
        """
        return CommitContended(
            f"{self._location}: {self._commit} was given up after {self.count} attempts: writing its "
            f"manifests took {self.aged_millis} ms, but they must be published within {limit_millis} ms, "
            "before a cleaner could take them for remains of an expired snapshot. Nothing was published, and "
            f"it is safe to try again. The limit is half of {option!r}, at least a minute and at most half "
            "an hour: raise that option, or find out why the storage is slow or the process was paused.",
            **self.facts(),
            attempts=self.count,
            option=option,
        )

    def unknown(self, failed: PaimonStreamError | None) -> CommitUnknown:
        """The error for a commit that one of its attempts may have published. `failed` is the error
        that came after that attempt.
        """
        cause = "" if failed is None else f" (then it failed with {type(failed).__name__})"
        return CommitUnknown(
            f"{self._location}: whether {self._commit} was published is not known{cause}. Nothing was "
            f"deleted. {advice_if_unknown(self.request.identifier)}",
            **self.facts(),
            attempts=self.count,
        )

    def tagged(self, failed: PaimonStreamError | None) -> CommitUnknown:
        """The error for a commit that was not published after somebody had tagged the snapshot of a
        lost attempt. `failed` is the error that the commit raised; None if nothing of the commit
        fits the table any more.
        """
        cause = "nothing of the commit fits the table any more"
        if failed is not None:
            cause = f"the commit failed with {type(failed).__name__}"
        advice = "It is safe to do the same again."
        if self.request.identifier != BATCH_IDENTIFIER:
            advice = advice_if_unknown(self.request.identifier)
        return CommitUnknown(
            f"{self._location}: the snapshot of {self._commit} was rolled back or replaced by another writer, and then "
            f"{cause}. A tag or branch may have its files, so nothing was "
            f"deleted. {advice}",
            **self.facts(),
            attempts=self.count,
        )

    def table_replaced(self) -> TableReplaced:
        """The error for a commit whose table was dropped or replaced."""
        return TableReplaced(
            f"{self._location}: the table was dropped, or dropped and created again, while {self._commit} "
            "was under way. Nothing was published. Start the query again to decide whether it continues "
            "here, or start with a new checkpoint to write everything again.",
            **self.facts(),
        )

    def removed_by_later_run(self, missing: Sequence[str]) -> SharedCheckpoint:
        """The error for a commit whose files a later run removed as those of a dead attempt."""
        return SharedCheckpoint(
            f"{self._location}: {self._commit} was paused before its snapshot was published. Meanwhile "
            f"another run of this stream began, and removed {len(missing)} of its files (such as "
            f"{missing[0]}) as those of a dead attempt. The snapshot was withdrawn, and nothing was "
            "published. Two queries run on one checkpoint or share a commit user: stop one.",
            **self.facts(),
        )

    @property
    def _commit(self) -> str:
        return f"commit {self.request.identifier} of user {self.request.user!r}"

    def facts(self) -> dict[str, object]:
        """The context that each error of this commit has."""
        return {
            "table": self._location,
            "user": self.request.user,
            "batch": self.request.identifier,
        }


def advice_if_unknown(identifier: int) -> str:
    """What to do after a commit with this identifier of which nobody knows whether it was
    published, as sentences. All batch commits share one identifier, so nothing looks for one of
    them.
    """
    if identifier == BATCH_IDENTIFIER:
        return (
            "Look for a snapshot of this user before you do the same again ('paimon-stream snapshots' lists "
            "them): if there is one, the commit is in the table, and a repeated append would add its rows a second "
            "time. A write with an identity can be repeated without a look."
        )
    return (
        "Start the query again: it looks for the commit before it publishes anything. If you called commit() "
        "yourself, call filter_and_commit() with the same messages."
    )
