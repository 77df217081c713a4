"""Every decoder of the package, with good inputs. `tests/kits/fuzzing.py` changes them at
random.
"""

from __future__ import annotations

from typing import Final

from tests.kits.fuzzing import Decoder
from tests.property import fuzzed_data, fuzzed_metadata, fuzzed_texts

CASES: Final[dict[str, Decoder]] = {
    **fuzzed_metadata.CASES,
    **fuzzed_texts.CASES,
    **fuzzed_data.CASES,
}
"""By name; each gets an empty folder."""
