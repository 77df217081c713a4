"""Planted bugs of tables in HDFS: what the rename of a temporary file must be asked."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from paimon_stream.storage import hdfs
from paimon_stream.storage.hdfs import HdfsStorage
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.hdfs import KIND, NameNode


@bug(
    "Nobody asks whether the temporary file is gone, so a repeated rename counts as failed.",
    KIND,
    rule=rules.WHOLE,
    why="The snapshot is there, and the commit that has failed removes its manifests.",
    seed=6,
)
def the_vanished_temporary_file_is_not_asked(patch: Patch) -> None:
    patch.setattr(HdfsStorage, "_is_gone", lambda self, temporary, failure: False)


@bug(
    "A rename that has failed counts as done, whether its temporary file is there or not.",
    KIND,
    "batch writer",
    rule=rules.WHOLE,
    why="A manifest has no name, and the snapshot refers to it.",
    seed=5,
)
def a_failed_rename_is_done(patch: Patch) -> None:
    patch.setattr(HdfsStorage, "_is_gone", lambda self, temporary, failure: True)
    patch.setattr(HdfsStorage, "_require", lambda self, path, failure: None)


@bug(
    "A rename replaces the file that has the name.",
    KIND,
    "batch writer",
    rule=rules.NOT_REPLACED,
    why="Two writers have the snapshot's id, and the batch of the first is gone.",
)
def a_rename_replaces(patch: Patch) -> None:
    def rename(self: NameNode, old: str, new: str, overwrite: bool) -> None:
        real(self, old, new, True)

    real = NameNode.rename
    patch.setattr(NameNode, "rename", rename)


@bug(
    "A temporary file gets its name though only a half of its content has arrived.",
    KIND,
    rule=rules.WHOLE,
    why="A manifest ends in the middle, and the snapshot refers to it.",
    seed=39,
)
def a_half_gets_the_name(patch: Patch) -> None:
    def finish(*given: Any) -> None:
        with suppress(OSError):
            real(*given)

    real = hdfs.finish
    patch.setattr(hdfs, "finish", finish)


@bug(
    "The temporary files of a file have the same name in each try.",
    KIND,
    rule=rules.NO_REASON,
    why="A killed writer has left one, and nobody can create the file any more.",
    seed=87,
)
def each_try_has_the_same_temporary_file(patch: Patch) -> None:
    def temporary_of(self: HdfsStorage, path: str) -> str:
        above, slash, name = path.rpartition("/")
        return f"{above}{slash}.{name}.tmp"

    patch.setattr(HdfsStorage, "temporary_of", temporary_of)
