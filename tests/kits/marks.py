"""Marks for all tests of a folder, to be set in the folder's conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


def marks_folder(
    conftest: str,
    *marks: pytest.MarkDecorator,
    without: tuple[str, ...] = (),
) -> Callable[[list[pytest.Item]], None]:
    """A hook that gives each test below the folder of `conftest` these marks, but not those in files
    whose names begin as `without` says: they have marks of their own.

    pytest calls the hooks of a conftest.py with the tests of all folders, so each file is looked at
    once.
    """
    folder = Path(conftest).parent

    @cache
    def has_marks(file: Path) -> bool:
        return folder in file.parents and not file.name.startswith(without)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if has_marks(item.path):
                for mark in marks:
                    item.add_marker(mark)

    return pytest_collection_modifyitems
