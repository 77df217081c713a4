"""Refuses a commit unless it is proven that the commit was not made before. If an operator has
decided to continue, only a warning is logged. All messages are in one place, so that each names the
table, the user, the batch, the cause and the remedy. `stream/replay_errors.py` has the refusals
that only streams need.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from paimon_stream import errors
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.options import ON_UNKNOWN_HISTORY, Option, Options

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefusals:
    """The refusals for one batch of one commit user. The options say which of them an operator has
    decided about.
    """

    location: str
    user: str
    batch_id: int
    options: Options
    accepted: set[str] = field(default_factory=set)
    """The keys of the options by which an operator let this batch continue."""
    given_up: set[int] = field(default_factory=set)
    """Earlier batches that may be missing. An operator let this batch continue without them."""

    @property
    def _facts(self) -> dict[str, Any]:
        return {"table": self.location, "user": self.user, "batch": self.batch_id}

    def history_unknown(self, cause: str) -> None:
        """Refuses the batch, because it is not known whether the batch was committed. `cause` says
        why that is not known.
        """
        self.decide(
            ON_UNKNOWN_HISTORY,
            errors.HistoryUnknown,
            f"whether the batch was committed is not known: {cause}",
            "Keep snapshots longer than a stream may be down (snapshot.time-retained, snapshot.num-retained.min). Look "
            "for the batch's rows in the table. If they are missing, let it continue",
        )

    def shared_checkpoint(self, published: Snapshot) -> errors.SharedCheckpoint:
        """The error for a batch that another run has published meanwhile. The snapshot `published`
        has this batch or a later one.
        """
        run_id = Marks.of(own_properties(published)).run_id
        who = "another writer"
        if run_id:
            who = f"run {run_id}"
        return errors.SharedCheckpoint(
            f"{self.location}: while commit user {self.user!r} worked on batch {self.batch_id}, {who} published batch "
            f"{published.commit_identifier} under the same user (snapshot {published.id}). That batch stays and this "
            "one was not published. Two queries run on one checkpoint or share a commit user: stop one.",
            **self._facts,
            snapshot=published.id,
        )

    def superseded_and_open(self, published: Snapshot) -> errors.CommitUnknown:
        """The error for a commit that another run has published as the snapshot `published`, after
        an attempt of this run had been replaced whose files a tag or a later snapshot may have.
        """
        return errors.CommitUnknown(
            f"{self.location}: another run has published commit {published.commit_identifier} of user {self.user!r} "
            f"(snapshot {published.id}). Before that, a snapshot of this run was rolled back or replaced by another "
            "writer, and a tag, a branch or a later snapshot may have its files, so nothing was deleted. Do the same again: it looks for "
            "the commit before it publishes anything.",
            **self._facts,
            snapshot=published.id,
        )

    def warn(self, doubt: str) -> None:
        """Logs, for a batch that continues, what is not proven."""
        _LOG.warning(
            "%s, batch %d of commit user %r: %s", self.location, self.batch_id, self.user, doubt
        )

    def decide(
        self,
        option: Option[str],
        kind: type[errors.PaimonStreamError],
        cause: str,
        advice: str,
        **facts: Any,
    ) -> None:
        """Refuses the batch, unless the option says to continue.

        Args:
            option: the option by which an operator lets the batch continue.
            kind: the error that is raised.
            cause: what is wrong, without a full stop.
            advice: what to do before the batch is allowed to continue, without a full stop.
            facts: more context of the error.

        Raises:
            PaimonStreamError: an error of the given `kind`.
        """
        if self.options.value(option) == "continue":
            self.accepted.add(option.key)
            _LOG.warning(
                "%s, batch %d of commit user %r: %s. Continuing, because %s = continue.",
                self.location,
                self.batch_id,
                self.user,
                cause,
                option.key,
            )
            return
        raise kind(
            f"{self.location}, batch {self.batch_id} of commit user {self.user!r}: {cause}. Nothing was written. "
            f"{advice}: option {option.key!r} = 'continue'.",
            **self._facts,
            option=option.key,
            **facts,
        )
