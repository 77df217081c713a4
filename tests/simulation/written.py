"""How a schedule reads metadata that it has encoded itself."""

from __future__ import annotations

from enum import Enum


class Written(Enum):
    """What becomes of metadata that a process of the schedule has encoded when it is read."""

    DECODED = "it is decoded"
    COMPARED = "it is decoded, and what comes out must equal what was encoded"
    TAKEN = "its bytes stand for what was encoded, and are not decoded"
