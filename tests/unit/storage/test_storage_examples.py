"""The examples in the docstrings of the storages are true."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from paimon_stream.storage import local, memory, uri
from tests.kits import faults


@pytest.mark.parametrize("module", [faults, local, memory, uri], ids=lambda module: module.__name__)
def test_the_examples_run(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
