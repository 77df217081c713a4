"""The error tree: as drawn, complete, and able to travel."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from paimon_stream import errors
from paimon_stream.errors import PaimonStreamError, StorageError, Unavailable, by_name

DOCS = Path(__file__).parents[3] / "docs"
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, PaimonStreamError)
}


def drawn_parents() -> dict[str, str | None]:
    """The tree in docs/api.md: each class and its parent."""
    drawn: dict[str, str | None] = {}
    above: list[str] = []
    for line in (DOCS / "api.md").read_text().splitlines():
        found = re.match(r"([│├└ ]*)([A-Z]\w+)(?: {2,}|$)", line)
        if found:
            depth = (len(found[1]) + 1) // 3
            del above[depth:]
            drawn[found[2]] = above[-1] if above else None
            above.append(found[2])
    return drawn


def test_the_drawn_tree_is_the_tree() -> None:
    bases = {name: kind.__base__ for name, kind in CLASSES.items()}
    real = {
        name: base.__name__ if base in CLASSES.values() else None
        for name, base in bases.items()
        if base
    }
    assert drawn_parents() == real


def test_all_names_every_class() -> None:
    assert sorted(errors.__all__) == sorted(CLASSES)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_error_says_what_it_means_and_pickles(kind: type[PaimonStreamError]) -> None:
    assert kind.__doc__
    error = kind("Batch 7 of t failed.", table="t", batch=7, path="a/b", message_count=2)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == copy.message == "Batch 7 of t failed."
    assert copy.context == {"table": "t", "batch": 7, "path": "a/b", "message_count": 2}


def test_names_become_classes_and_strangers_the_base() -> None:
    for name, kind in CLASSES.items():
        assert by_name(name) is kind
    for name in ("NoSuchError", "Any", "_rebuild", "", "__doc__"):
        assert by_name(name) is PaimonStreamError


def test_no_error_hides_as_one_of_python() -> None:
    for kind in CLASSES.values():
        assert not issubclass(kind, OSError | ValueError | RuntimeError)
    assert issubclass(Unavailable, StorageError)
