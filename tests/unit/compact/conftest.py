from __future__ import annotations

import pytest

from tests.kits.marks import marks_folder

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.lowest)
