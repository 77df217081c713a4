"""What the option `paimon-stream.on-sequence-conflict` decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.errors import IndexConflict, SequenceConflict
from paimon_stream.options import Options
from paimon_stream.stream.sequence_conflicts import (
    fresh_numbering,
    prepared_numbering,
    rewrites,
)
from paimon_stream.table.table import Table
from tests.kits.commits import Bench

KEYED = {"bucket": "1", "write-only": "true"}


def deciding(choice: str | None, bench: Bench | None = None) -> Table:
    """A table whose writer has made this choice, or none."""
    table = (bench or Bench()).table
    own = {} if choice is None else {"paimon-stream.on-sequence-conflict": choice}
    return replace(table, options=Options(table.options, own))


def test_a_batch_is_written_again_unless_the_option_says_fail() -> None:
    table, stopping = deciding(None), deciding("fail")
    assert rewrites(table, SequenceConflict("used"))
    assert not rewrites(stopping, SequenceConflict("used"))
    assert rewrites(stopping, IndexConflict("changed")), "it is no matter of numbers"


@pytest.mark.parametrize("choice", [None, "rewrite", "fail"])
def test_numbers_are_compared_unless_the_option_says_ignore(choice: str | None) -> None:
    bench = Bench(options=KEYED, keys=("id",))
    table, ignoring = deciding(choice, bench), deciding("ignore", bench)
    fresh = fresh_numbering(table, bench.committer(), replaces=False)
    prepared = prepared_numbering(table, None)
    assert fresh is not None and not fresh.may_be_shared
    assert prepared is not None and not prepared.may_be_shared
    shared = replace(fresh, may_be_shared=True)
    assert fresh_numbering(ignoring, bench.committer(), replaces=False) == shared
    assert prepared_numbering(ignoring, None) == replace(prepared, may_be_shared=True)


def test_rows_without_a_primary_key_have_no_numbers() -> None:
    bench = Bench()
    ignoring = deciding("ignore", bench)
    assert fresh_numbering(ignoring, bench.committer(), replaces=False) is None
    assert prepared_numbering(ignoring, None) is None
