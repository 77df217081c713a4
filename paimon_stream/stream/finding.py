"""What is found in the evidence: the value of a fact, and the words of what it refuses."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from paimon_stream.stream.replay_errors import ReplayErrors

Value = TypeVar("Value", bound=Enum)
Say: TypeAlias = Callable[[ReplayErrors], object]
"""Raises a refusal, or logs it if an operator has decided; or says a remark."""


def _say_nothing(_: ReplayErrors) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Finding(Generic[Value]):
    """The value of a fact. `say` has what a message needs, if the value refuses or is remarked."""

    value: Value
    say: Say = _say_nothing
