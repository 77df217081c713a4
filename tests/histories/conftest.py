from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.kits.marks import marks_folder

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.bare)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The warnings of the package are no news here."""
    package = logging.getLogger("paimon_stream")
    before = package.level
    package.setLevel(logging.CRITICAL)
    yield
    package.setLevel(before)
