"""Small changes to the deletion of rows that the simulation must catch."""

from __future__ import annotations

import numpy as np

from paimon_stream.change import files
from paimon_stream.commit.vectors import VectorChanges
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.deletes import KIND


@bug(
    "A deletion forgets what others have deleted from its files.",
    KIND,
    "deleter",
    "second deleter",
    rule=rules.DELETES,
    why="The new vector of a file lacks the marks of the old one.",
)
def deletions_of_others_are_lost(patch: Patch) -> None:
    none = np.empty(0, np.int64)
    patch.setattr(files, "deleted_rows", lambda scan, files: (none for _ in files))


@bug(
    "A new index file has only the vectors of the files of this deletion.",
    KIND,
    "deleter",
    "second deleter",
    rule=rules.DELETES,
    why="The new index file replaces the old one, and lacks the vectors of other files.",
)
def vectors_of_other_files_are_lost(patch: Patch) -> None:
    patch.setattr(VectorChanges, "_kept", lambda *given: iter(()))
