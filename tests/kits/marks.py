"""Marks for all tests of a folder, to be set in the folder's conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def marks_folder(
    conftest: str,
    *marks: pytest.MarkDecorator,
) -> Callable[[list[pytest.Item]], None]:
    """A hook that gives each test below the folder of `conftest` these marks.

    pytest calls the hooks of a conftest.py with the tests of all folders.
    """
    folder = Path(conftest).parent

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if folder in item.path.parents:
                for mark in marks:
                    item.add_marker(mark)

    return pytest_collection_modifyitems
