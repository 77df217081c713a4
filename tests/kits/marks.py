"""Marks for all tests of a folder, to be set in the folder's conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def marks_folder(
    conftest: str,
    *marks: pytest.MarkDecorator,
    without: tuple[str, ...] = (),
) -> Callable[[list[pytest.Item]], None]:
    """A hook that gives each test below the folder of `conftest` these marks, but not those in files
    whose names begin as `without` says: they have marks of their own.

    pytest calls the hooks of a conftest.py with the tests of all folders.
    """
    folder = Path(conftest).parent

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if folder in item.path.parents and not item.path.name.startswith(without):
                for mark in marks:
                    item.add_marker(mark)

    return pytest_collection_modifyitems
