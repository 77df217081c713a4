"""Whether another engine writes the table on a store where it may replace a snapshot of ours, and
what is known of a commit whose snapshot it replaced: its files, and how to commit them again.

The nonce of a snapshot is the name of its delta manifest list. The list and its manifests stay on
the storage when the snapshot's own file is replaced, until orphan files are removed. Nothing here
writes.

`Refusals` refuse a commit if it cannot be proven that it was not made before, or log a warning if
an operator has decided to continue. The wording is in one place, so that every text names table,
user, batch, cause and cure. `stream/replay_errors.py` has the refusals that only streams need.
"""

import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from paimon_stream import errors
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import Marks, Snapshot, SnapshotRef, is_ours, own_properties
from paimon_stream.options import COMMIT_GUARD, ON_UNKNOWN_HISTORY, Option, Options
from paimon_stream.runtime import Clock
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.location import KIND_OF, scheme_of
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFacts:
    """The number of files and rows that a lost commit had added, None if that is not known, and the
    command that commits the files again. In a store, it needs the storage options as well.
    """

    files: int | None
    rows: int | None
    command: str
    in_store: bool

    @classmethod
    def of(
        cls,
        location: str,
        user: str,
        batch: int,
        added: list[DataFileMeta] | None,
        which: tuple[str, ...] = (),
    ) -> "LostFacts":
        """The facts of a commit that had added these files. `which` are the options that say where
        they are noted, if they are not in a journal.
        """
        return cls(
            files=None if added is None else len(added),
            rows=None if added is None else sum(one.row_count for one in added),
            command=shlex.join(
                (
                    "paimon-stream",
                    "recommit",
                    "--user",
                    user,
                    "--batch",
                    str(batch),
                    *which,
                    location,
                )
            ),
            in_store=scheme_of(location) in KIND_OF,
        )

    @property
    def sentence(self) -> str:
        """The numbers as a sentence."""
        if self.files is None:
            return "how many is not known, because its manifests are gone."
        return f"{self.rows:,} in {self.files:,} {'file' if self.files == 1 else 'files'}."

    @property
    def cure(self) -> str:
        """The command, and what has to be added to it."""
        more = (
            ", and a --storage-option for each storage option of this writer"
            if self.in_store
            else ""
        )
        return f"{self.command} (with --yes after a look at what it shows{more})"

    @property
    def context(self) -> dict[str, Any]:
        """The facts for programs."""
        return {"files": self.files, "rows": self.rows, "command": self.command}


def lost_facts(storage: Storage, user: str, batch: int, snapshot: SnapshotRef) -> LostFacts:
    """The facts of a commit that was this snapshot. They are for a message, so nothing is
    raised.
    """
    entries = lost_entries(ManifestStore(storage), snapshot.nonce)
    added = None if entries is None else [one.file for one in entries if one.kind is FileKind.ADD]
    which = ("--snapshot", str(snapshot.id), "--delta-list", snapshot.nonce)
    return LostFacts.of(storage.location, user, batch, added, which)


def lost_entries(manifests: ManifestStore, nonce: str) -> list[ManifestEntry] | None:
    """The entries of the delta of a snapshot that had this nonce; None if they cannot be read."""
    try:
        return [entry for meta in manifests.read_list(nonce) for entry in manifests.read(meta)]
    except (errors.CorruptMetadata, errors.StorageError):
        return None


_LOG = logging.getLogger(__name__)

_LOOKED_AT: Final = 20
_LATELY_MILLIS: Final = 7 * 86_400_000
_PLAIN_AZURE: Final = "an Azure account without a hierarchical namespace"
_WHERE: Final = {"s3": "this store", "gcs": "Google Cloud Storage", "azure": _PLAIN_AZURE}


def guard_stream(table: Table, snapshots: SnapshotStore, newest: int, clock: Clock) -> None:
    """Looks at the last 20 snapshots up to the id `newest`, in one trip. Logs a warning if another
    engine made one within seven days, or raises `UnsupportedTable` if `paimon-stream.commit.guard`
    is strict. Looks at nothing where other engines publish atomically. Raises what
    `SnapshotStore.find` raises.
    """
    if not _is_judged(table):
        return
    ids = range(newest, max(0, newest - _LOOKED_AT), -1)
    found = snapshots.storage.together([partial(snapshots.find, one) for one in ids])
    _judge(table, (one for one in found if one is not None), clock)


def guard_commit(table: Table, latest: Snapshot | None, clock: Clock) -> None:
    """Warns a writer without a stream, for which only the latest snapshot is looked at, because it
    was read anyway.
    """
    if latest is not None and _is_judged(table):
        _judge(table, (latest,), clock)


def _is_judged(table: Table) -> bool:
    alone = getattr(table.storage, "takes_lock", False) or is_served(
        table.storage
    )  # other engines cannot get between
    return (
        not alone
        and scheme_of(table.location) in KIND_OF
        and table.options.value(COMMIT_GUARD) != "trust"
    )


def _judge(table: Table, found: Iterable[Snapshot], clock: Clock) -> None:
    since = clock.now_millis() - _LATELY_MILLIS
    other = next((one for one in found if one.time_millis >= since and not is_ours(one)), None)
    if other is None:
        return
    minutes = max(0, clock.now_millis() - other.time_millis) // 60_000
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
    facts = (
        f"{table.location}: another engine writes this table: user {other.commit_user!r} made snapshot {other.id}, "
        f"{ago} ago. In {_WHERE[KIND_OF[scheme_of(table.location)]]} other engines publish without a condition, so "
        "they may replace a snapshot that was published here, and its rows are lost. Let them only read this table, or "
        "let only them write it, or name the table by its JDBC catalog, whose lock is taken here, too."
    )
    if table.options.value(COMMIT_GUARD) == "strict":
        text = f"{facts} Nothing was written, because {COMMIT_GUARD.key} = strict."
        raise errors.UnsupportedTable(
            text, table=table.location, user=other.commit_user, snapshot=other.id
        )
    cure = "A batch that is lost raises CommitLost, and 'paimon-stream recommit' commits it again."
    _LOG.warning("%s %s %s = strict refuses such a table.", facts, cure, COMMIT_GUARD.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The refusals for one batch of one commit user, as the options say."""

    location: str
    user: str
    batch_id: int
    options: Options
    accepted: set[str] = field(default_factory=set)
    """The keys of the options by which an operator let this batch continue."""
    given_up: set[int] = field(default_factory=set)
    """Earlier batches that may be missing, without which an operator let this batch continue."""

    @property
    def _facts(self) -> dict[str, Any]:
        return {"table": self.location, "user": self.user, "batch": self.batch_id}

    def history_unknown(self, cause: str) -> None:
        """Whether the batch was committed is not known."""
        cure = (
            "Keep snapshots longer than a stream may be down (snapshot.time-retained, snapshot.num-retained.min). Look "
            "for the batch's rows in the table. If they are missing, let it continue"
        )
        why = f"whether the batch was committed is not known: {cause}"
        self.decide(ON_UNKNOWN_HISTORY, errors.HistoryUnknown, why, cure)

    def shared_checkpoint(self, published: Snapshot) -> errors.SharedCheckpoint:
        """The error for a batch that another run has published meanwhile, as this snapshot or
        before it.
        """
        run_id = Marks.of(own_properties(published)).run_id
        who = f"run {run_id}" if run_id else "another writer"
        text = (
            f"{self.location}: while commit user {self.user!r} worked on batch {self.batch_id}, {who} published batch "
            f"{published.commit_identifier} under the same user (snapshot {published.id}). That batch stays and this "
            "one was not published. Two queries run on one checkpoint or share a commit user: stop one."
        )
        return errors.SharedCheckpoint(text, **self._facts, snapshot=published.id)

    def warn(self, text: str) -> None:
        """Says what is not proven where a batch continues all the same."""
        _LOG.warning(
            "%s, batch %d of commit user %r: %s", self.location, self.batch_id, self.user, text
        )

    def decide(
        self,
        option: Option[str],
        kind: type[errors.PaimonStreamError],
        cause: str,
        cure: str,
        **facts: Any,
    ) -> None:
        """Raises that kind of error with the facts, unless the option says to continue."""
        what = f"{self.location}, batch {self.batch_id} of commit user {self.user!r}: {cause}."
        if self.options.value(option) == "continue":
            self.accepted.add(option.key)
            _LOG.warning("%s Continuing, because %s = continue.", what, option.key)
            return
        text = f"{what} Nothing was written. {cure}: option {option.key!r} = 'continue'."
        raise kind(text, **self._facts, option=option.key, **facts)
