from __future__ import annotations

import pytest

from tests.kits.marks import marks_folder

# The tests of the compaction behind a stream write real files, on a disk.
pytest_collection_modifyitems = marks_folder(
    __file__, pytest.mark.store, without=("test_compacting",)
)
