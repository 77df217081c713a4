from __future__ import annotations

import pytest

from tests.kits.marks import marks_folder
from tests.kits.places import STORE

# The tests of the compaction behind a stream write real files, on a disk. HDFS has other trips than
# an object store.
_ELSEWHERE = ("test_compacting", *(("test_trips",) if STORE == "hdfs" else ()))
pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.store, without=_ELSEWHERE)
