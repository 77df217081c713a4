"""Checks the arguments of `TableCommit`. Everything here raises `InvalidOption`."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import LONG, Arguments

Number = TypeVar("Number", bound=int | None)

_MESSAGES = "a list of CommitMessage"


def taken_identifier(table: str, identifier: Number, *, repeatable: bool = False) -> Number:
    """The identifier, a whole number of 64 bits. `table` is the location, here and below. A `repeatable` one
    may be None, but not the identifier that all batch commits share."""
    most = LONG[1] - repeatable
    return Arguments(table).whole("identifier", identifier, least=LONG[0], most=most, optional=repeatable)


def taken_marks(
    table: str, watermark: int | None, properties: Mapping[str, str] | None
) -> tuple[int | None, dict[str, str]]:
    """The watermark, None or a whole number of 64 bits, and the properties, None or a mapping of texts."""
    given = Arguments(table)
    return (
        given.whole("watermark", watermark, least=LONG[0], most=LONG[1], optional=True),
        given.mapping("properties", properties, "{'name': 'value'}", texts=True),
    )


def taken_messages(table: str, messages: Iterable[CommitMessage]) -> tuple[CommitMessage, ...]:
    """The messages of a list, or of an iterator, which is taken once."""
    return Arguments(table).items("messages", messages, CommitMessage, _MESSAGES)


def taken_committables(
    table: str, committables: Mapping[int, Iterable[CommitMessage]]
) -> dict[int, tuple[CommitMessage, ...]]:
    """The messages of each identifier, in ascending order of the identifiers."""
    given = Arguments(table)
    if not isinstance(committables, Mapping):
        raise given.wrong("committables", committables, f"a dict of identifiers, each with {_MESSAGES}")
    numbers = {given.whole("a key of committables", key, least=LONG[0], most=LONG[1]): key for key in committables}
    return {
        one: given.items(f"committables[{one}]", committables[numbers[one]], CommitMessage, _MESSAGES)
        for one in sorted(numbers)
    }
