"""How often functions are called: what a step costs, however busy the machine is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """How often each function is called in this thread, by its file and name. Of a generator, each
    step counts.
    """
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            counted[f"{Path(code.co_filename).stem}.{code.co_name}"] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return counted


def grown_too_much(
    small: Counter[str], large: Counter[str], times: float, fresh: int = 25
) -> dict[str, str]:
    """The functions that are called more than `times` as often, with both numbers. A few calls more
    do not count, nor do `fresh` calls of a function that small inputs do not need at all.
    """
    return {
        name: f"{small[name]} -> {calls}"
        for name, calls in large.items()
        if calls > (times * small[name] + 25 if small[name] else fresh)
    }
