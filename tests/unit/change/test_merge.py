"""A merge as data: each method returns a new one, and what needs no table is checked at once."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow.compute as pc
import pytest

from paimon_stream import Merge
from paimon_stream.change.merge_clauses import Action, When
from paimon_stream.errors import InvalidOption, UnsupportedFeature

UPSERT = Merge(on=["id"]).when_matched_update_all().when_not_matched_insert_all(except_cols=["n"])


def test_each_method_adds_a_clause_to_a_new_merge() -> None:
    merge = (
        Merge(on="s.id = t.id", source_alias="s", target_alias="t")
        .when_matched_delete("s.n IS NULL")
        .when_matched_update({"n": "s.n"}, pc.field("source.n") > 1)
        .when_matched_update_all("s.n > 0")
        .when_not_matched_insert({"id": "s.id"}, "s.n > 3")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"n": "0"}, "t.p = 'a'")
        .when_not_matched_by_source_delete("t.p = 'b'")
    )
    merge.check()
    assert [clause.name for clause in merge.clauses] == [
        "when_matched_delete",
        "when_matched_update",
        "when_matched_update_all",
        "when_not_matched_insert",
        "when_not_matched_insert_all",
        "when_not_matched_by_source_update",
        "when_not_matched_by_source_delete",
    ]
    assert (UPSERT.on, len(UPSERT.clauses)) == (("id",), 2)
    assert UPSERT.when_not_matched_by_source_delete("p = 'a'").clauses[:2] == UPSERT.clauses
    assert len(UPSERT.clauses) == 2


def test_a_merge_can_be_pickled() -> None:
    merge = UPSERT.when_not_matched_by_source_update({"n": pc.scalar(1)}, pc.field("target.p") == 1)
    again = pickle.loads(pickle.dumps(merge))
    assert (again.on, again.clauses[:2]) == (merge.on, merge.clauses[:2])
    last = again.clauses[2]
    assert (last.when, last.action) == (When.NOT_MATCHED_BY_SOURCE, Action.UPDATE)
    assert last.predicate.equals(merge.clauses[2].predicate)


@pytest.mark.parametrize("on", [None, [], 7, [7], {"id"}, b"id"])
def test_what_matches_is_a_list_of_names_or_a_text(on: Any) -> None:
    with pytest.raises(InvalidOption, match=r"on is .*Give the names of the columns"):
        Merge(on=on)


@pytest.mark.parametrize("updates", [None, {}, ["n"], "n = 1"])
def test_values_are_given_by_column(updates: Any) -> None:
    with pytest.raises(InvalidOption, match=r"updates is .*Give a value for each column"):
        Merge(on=["id"]).when_matched_update(updates)
    with pytest.raises(InvalidOption, match=r"updates is .*Give a value for each column"):
        Merge(on=["id"]).when_not_matched_insert(updates)


def test_later_changes_of_the_arguments_change_no_merge() -> None:
    names, updates = ["id"], {"n": "source.n"}
    merge = Merge(on=names).when_matched_update(updates)
    names.append("p")
    updates["p"] = "'a'"
    assert merge.on == ("id",)
    assert merge.clauses[0].updates == {"n": "source.n"}


@pytest.mark.parametrize(
    ("merge", "error", "text"),
    [
        (Merge(on=["id"]), InvalidOption, "the merge has no clause"),
        (UPSERT.when_matched_delete(), InvalidOption, "when_matched_delete never holds"),
        (
            Merge(on=["id"], source_alias="a b").when_matched_delete(),
            InvalidOption,
            "Give two different words",
        ),
        (
            UPSERT.when_not_matched_by_source_delete(),
            UnsupportedFeature,
            "when_not_matched_by_source_delete has no predicate",
        ),
        (
            UPSERT.when_not_matched_by_source_update({"n": "0"}),
            UnsupportedFeature,
            "when_not_matched_by_source_update has no predicate",
        ),
    ],
)
def test_what_is_wrong_for_every_table_is_refused_without_one(
    merge: Merge, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        merge.check()
