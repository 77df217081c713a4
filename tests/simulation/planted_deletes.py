"""Small changes to the deletion of rows that the simulation must catch."""

from __future__ import annotations

from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.maintenance import delete_rows
from tests.simulation.bug import Patch, bug
from tests.simulation.deletes import KIND


@bug(
    "A deletion forgets what others have deleted from its files.", KIND, "deleter", "second deleter"
)
def deletions_of_others_are_lost(patch: Patch) -> None:
    patch.setattr(delete_rows, "deleted_rows", lambda scan, files: ([] for _ in files))


@bug(
    "A new index file has only the vectors of the files of this deletion.",
    KIND,
    "deleter",
    "second deleter",
)
def vectors_of_other_files_are_lost(patch: Patch) -> None:
    patch.setattr(VectorChanges, "_kept", lambda *given: iter(()))
