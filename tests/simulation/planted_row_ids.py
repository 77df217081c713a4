"""Small changes to the commits of tables with row tracking that the simulation must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paimon_stream.commit import stage
from paimon_stream.commit.plan import Changes
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.row_ids import KIND


@bug(
    "New rows get ids, but the snapshot does not say which are free.",
    KIND,
    rule=rules.ROW_IDS,
    why="The next commit gives out the same ids.",
)
def the_next_id_stays(patch: Patch) -> None:
    real = stage.with_row_ids
    patch.setattr(
        stage, "with_row_ids", lambda changes, first, id_: (real(changes, first, id_)[0], first)
    )


@bug(
    "An attempt gives out the ids that the first attempt gave out.",
    KIND,
    "stream b",
    "batch writer",
    rule=rules.ROW_IDS,
    why="Another commit has given out these ids meanwhile.",
)
def a_second_attempt_keeps_its_ids(patch: Patch) -> None:
    given: dict[str, int] = {}

    def with_row_ids(changes: Changes, first: int, id_: int) -> tuple[Changes, int]:
        made, end = real(changes, first, id_)
        entries = []
        for one in made.entries:
            ids = given.setdefault(one.file.file_name, one.file.first_row_id or 0)
            entries.append(replace(one, file=replace(one.file, first_row_id=ids)))
        return replace(made, entries=tuple(entries)), end

    real: Any = stage.with_row_ids
    patch.setattr(stage, "with_row_ids", with_row_ids)


@bug(
    "Only appends get ids, so the rows of overwrites have none.",
    KIND,
    "overwriter",
    rule=rules.ROW_IDS,
    why="The files of the overwrite have none.",
)
def rows_of_overwrites_have_no_ids(patch: Patch) -> None:
    def with_row_ids(changes: Changes, first: int, id_: int) -> tuple[Changes, int]:
        return (changes, first) if changes.takes_away else real(changes, first, id_)

    real: Any = stage.with_row_ids
    patch.setattr(stage, "with_row_ids", with_row_ids)
