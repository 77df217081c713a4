"""Which module imports which: no circles, also not by imports inside functions."""

from __future__ import annotations

from tests.kits.modules import circles, imports, joined


def test_no_module_reaches_itself_at_run_time() -> None:
    assert circles(imports().at_run_time) == []


def test_no_module_reaches_itself_by_what_only_type_checkers_import() -> None:
    both = imports()
    assert circles(joined(both.at_run_time, both.for_types)) == []


def test_circles_are_found() -> None:
    graph = {
        "a": frozenset("b"),
        "b": frozenset("c"),
        "c": frozenset("ab"),
        "d": frozenset("ae"),
        "e": frozenset("d"),
        "f": frozenset("a"),
    }
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
