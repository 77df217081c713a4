"""What the option `paimon-stream.on-sequence-conflict` decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import IndexConflict, SequenceConflict
from paimon_stream.options import Options
from paimon_stream.stream.sequence_conflicts import as_decided, rewrites
from paimon_stream.table.table import Table
from tests.kits.commits import Bench


def deciding(choice: str | None) -> Table:
    """A table whose writer has made this choice, or none."""
    table = Bench().table
    own = {} if choice is None else {"paimon-stream.on-sequence-conflict": choice}
    return replace(table, options=Options(table.options, own))


def test_a_batch_is_written_again_unless_the_option_says_fail() -> None:
    table, stopping = deciding(None), deciding("fail")
    assert rewrites(table, SequenceConflict("used"))
    assert not rewrites(stopping, SequenceConflict("used"))
    assert rewrites(stopping, IndexConflict("changed")), "it is no matter of numbers"


@pytest.mark.parametrize("choice", [None, "rewrite", "fail"])
def test_numbers_are_compared_unless_the_option_says_ignore(choice: str | None) -> None:
    numbering = Numbering(base=None, first=7)
    assert as_decided(deciding(choice), numbering) == numbering
    assert as_decided(deciding("ignore"), numbering) == replace(numbering, may_be_shared=True)
    assert as_decided(deciding("ignore"), None) is None
