"""Writes the file LATEST for readers, during a commit. LATEST is only a hint: a failure to write it
is logged, and the commit goes on.

Invariant: LATEST does not keep naming a snapshot of this commit that is not part of the table. Java
trusts a hint without checking the snapshots. So the hint is written early only together with the
look that confirms the snapshot. It is removed before the snapshot may be removed.
"""

import logging
from collections.abc import Callable
from functools import partial

from paimon_stream.errors import PaimonStreamError
from paimon_stream.table.snapshots import SnapshotStore

_LOG = logging.getLogger(__name__)


class LatestHint:
    """Points LATEST to the snapshot of one commit."""

    def __init__(self, snapshots: SnapshotStore, same_table: Callable[[], bool]) -> None:
        """Makes the hint of one commit, and writes nothing. `same_table` says whether the table is
        still the one of the commit.
        """
        self._snapshots = snapshots
        self._same_table = same_table
        self._pointed_to: int | None = None
        """The id of a snapshot to which LATEST was pointed before the snapshot was confirmed. None
        if there is no such snapshot, or if LATEST was corrected since.
        """

    @property
    def is_early(self) -> bool:
        """Whether LATEST was pointed to a snapshot before the snapshot was confirmed."""
        return self._pointed_to is not None

    def point(self, snapshot_id: int) -> None:
        """Points LATEST to a snapshot while the snapshot is being confirmed."""
        self._pointed_to = snapshot_id
        self._try(partial(self._snapshots.point_latest, snapshot_id))

    def retract(self) -> None:
        """Removes LATEST before the snapshot that it names may be removed."""
        if self.is_early:
            self._try(self._snapshots.forget_latest)

    def correct(self) -> None:
        """Corrects LATEST if it was pointed to a snapshot that is not the newest, or not part of
        the table.
        """
        if self._pointed_to is not None:
            self._try(partial(self._snapshots.correct_latest, self._pointed_to, self._same_table))
            self._pointed_to = None

    def write(self, snapshot_id: int) -> None:
        """Points LATEST to a snapshot that was confirmed."""
        self._try(partial(self._snapshots.write_latest_hint, snapshot_id))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except PaimonStreamError as error:
            _LOG.warning("%s: could not write the LATEST hint: %s", self._snapshots.location, error)
