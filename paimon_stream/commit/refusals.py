"""Refuses a commit if it cannot be proven that it was not made before, or logs a warning if an
operator has decided to continue. The wording is in one place, so that each text names table, user,
batch, cause and cure. `stream/replay_errors.py` has the refusals that only streams need.
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
