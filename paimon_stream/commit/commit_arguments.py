"""Checks the arguments of `TableCommit`. Everything here raises `InvalidOption`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import LONG, Arguments

__all__ = ["check_identifier", "check_marks", "taken_committables", "taken_messages"]

_MESSAGES = "a list of CommitMessage"


def check_identifier(table: str, identifier: object, *, optional: bool = False) -> None:
    """The identifier is a whole number of 64 bits. `table` is the location, here and below."""
    Arguments(table).whole("identifier", identifier, least=LONG[0], most=LONG[1], optional=optional)


def check_marks(table: str, watermark: object, properties: object) -> None:
    """The watermark is None or a whole number of 64 bits, the properties are None or a mapping of texts."""
    given = Arguments(table)
    given.whole("watermark", watermark, least=LONG[0], most=LONG[1], optional=True)
    given.mapping("properties", properties, "{'name': 'value'}", texts=True)


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
    for identifier in committables:
        given.whole("a key of committables", identifier, least=LONG[0], most=LONG[1])
    return {
        one: given.items(f"committables[{one}]", committables[one], CommitMessage, _MESSAGES)
        for one in sorted(committables)
    }
