"""Doubles in the places of names of modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def in_their_places(doubles: Sequence[tuple[Any, str, object]]) -> Iterator[None]:
    """Each double takes the place of the name of a module, until the end of the block."""
    real = [(module, name, getattr(module, name)) for module, name, _ in doubles]
    for module, name, double in doubles:
        setattr(module, name, double)
    try:
        yield
    finally:
        for module, name, was in real:
            setattr(module, name, was)
