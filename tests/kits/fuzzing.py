"""Changes good bytes at random and has a decoder read what comes of them.

A `Decoder` is a case for `tests/kits/limited.py`. Whatever goes wrong names the number of the
change, the kind of change and the bytes in base64, so that the case can be made a test of its own.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

from paimon_stream.errors import FormatError, UnsupportedFeature
from tests.kits import limited
from tests.kits.seeds import examples

__all__ = [
    "GOLDEN",
    "PATH",
    "TESTS",
    "Decoder",
    "golden_files",
    "mutated",
    "never",
    "of_bytes",
    "of_file",
    "of_text",
]

TESTS: Final = Path(__file__).parent.parent
GOLDEN: Final = TESTS / "golden"
PATH: Final = "/t/file"

_SECONDS: Final = 5
"""The most seconds of the processor for one input. They are a few kilobytes, and take
milliseconds.
"""
_MEGABYTES: Final = 128
"""The most that memory may grow by while one input is read."""

_VALUES: Final = (
    b"\xff",
    b"\x00",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\x7f",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x08",
    b"[[[[",
    b"{",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"99999999999999999999",
    b"-1",
    b"1e999",
    b"NaN",
    b"\x22",
    b"\\ud800",
    b"null",
    b"\xc3",
    b"../",
    b"\x00" * 8,
    b"\x80" * 8,
    b"%2F",
    b"%00",
    b"[",
    b"]",
    b":",
    b"@",
    b"=",
    b"9" * 5000,
    b"\xc2\xb2",
    b"0",
    b"true",
    b"[]",
    b"{}",
    b"\xe2\x84\x80",
)
"""Values that claim a length, or that decoders of numbers, JSON, paths and URLs are known to
stumble over.
"""


def _cut(made: bytearray, at: int, until: int, other: bytes, chance: random.Random) -> None:
    del made[at:]


def _bits_flipped(
    made: bytearray, at: int, until: int, other: bytes, chance: random.Random
) -> None:
    made[at:until] = bytes(byte ^ 1 << chance.randrange(8) for byte in made[at:until])


def _part_repeated(
    made: bytearray, at: int, until: int, other: bytes, chance: random.Random
) -> None:
    made[at:at] = made[chance.randrange(len(made) + 1) :][:200]


def _part_of_another(
    made: bytearray, at: int, until: int, other: bytes, chance: random.Random
) -> None:
    start = chance.randrange(len(other) + 1)
    made[at:until] = other[start : start + 40]


def _spliced(made: bytearray, at: int, until: int, other: bytes, chance: random.Random) -> None:
    made[at:] = other[chance.randrange(len(other) + 1) :]


def _value_put(made: bytearray, at: int, until: int, other: bytes, chance: random.Random) -> None:
    made[at:until] = chance.choice(_VALUES)


def _number_put(made: bytearray, at: int, until: int, other: bytes, chance: random.Random) -> None:
    number = chance.choice((1, -1)) * (1 << chance.randrange(32)) + chance.randint(-1, 1)
    at -= at % 4
    made[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, chance.choice(("big", "little")))


def _one_changed(made: bytearray, at: int, until: int, other: bytes, chance: random.Random) -> None:
    for i in range(at, min(at + 1, len(made))):
        made[i] = (made[i] + chance.choice((-1, 1, 128))) & 0xFF


def _part_deleted(
    made: bytearray, at: int, until: int, other: bytes, chance: random.Random
) -> None:
    del made[at:until]


def _repeated_often(
    made: bytearray, at: int, until: int, other: bytes, chance: random.Random
) -> None:
    made[at:at] = made[at:until] * chance.choice((3, 40, 1000))


_JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    2**63,
    10**30,
    1.5,
    1e300,
    "",
    "../x",
    "\0",
    "\ud800",
    "9" * 5000,
    "1",
    [],
    {},
    [None],
    [[]] * 3,
    {"id": 1},
    json.loads("[" * 300 + "]" * 300),
)


def _with_other_value(good: bytes, chance: random.Random) -> bytes:
    """The JSON object with another value somewhere, or without one."""
    node = json.loads(good)
    inner: Any = node
    while True:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = chance.choice(keys)
        if not (isinstance(inner[key], dict | list) and inner[key] and chance.random() < 0.8):
            break
        inner = inner[key]
    if chance.random() < 0.1:
        del inner[key]
    else:
        inner[key] = chance.choice(_JUNK)
    return json.dumps(node).encode()


_CHANGES: Final = (
    _cut,
    _bits_flipped,
    _part_repeated,
    _part_of_another,
    _spliced,
    _value_put,
    _number_put,
    _one_changed,
    _part_deleted,
    _repeated_often,
)
_OF_EQUAL_LENGTH: Final = (_bits_flipped, _one_changed)


def mutated(
    good: bytes, other: bytes, chance: random.Random, *, keeps_length: bool = False
) -> tuple[str, bytes]:
    """The names of one to three changes, and the good bytes with them. `other` is another good
    input, from which parts are taken.
    """
    made, names = bytearray(good), []
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(made) + 1)
        until = min(len(made), at + chance.randint(0, 12))
        change = chance.choice(_OF_EQUAL_LENGTH if keeps_length else _CHANGES)
        change(made, at, until, other, chance)
        names.append(change.__name__.strip("_"))
    return " + ".join(names), bytes(made)


class _TooLong(BaseException):
    """No `Exception`, so that no decoder takes it for one of its own."""


def _stop(*_: Any) -> None:
    raise _TooLong(f"it takes more than {_SECONDS} seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """How a kind of bytes is decoded, with good ones of the kind. `prepare` gets an empty folder
    and returns the decoder. It may raise errors of `raises`, which `naming` is in the text of (""
    for none). A decoder that takes long reads only a `share` of the changed inputs. `head` is the
    number of bytes of a good input that stay as they are.
    """

    good: Sequence[bytes]
    decode: Callable[[bytes], object] | None = None
    prepare: Callable[[str], Callable[[bytes], object]] | None = None
    raises: tuple[type[Exception], ...] = (FormatError, UnsupportedFeature)
    naming: str = ""
    share: float = 1.0
    keeps_length: bool = False
    head: Callable[[bytes], int] = lambda _: 0

    def prepared(self, folder: str) -> Callable[[bytes], object]:
        """The decoder. It uses this empty folder."""
        if self.prepare is not None:
            return self.prepare(folder)
        assert self.decode is not None
        return self.decode

    def __call__(self, folder: str) -> None:
        """Reads some changed inputs. Raises `AssertionError` for one that is not decoded as
        promised.
        """
        self.run(self.prepared(folder), range(ceil(self.share * examples(25, 2000))))

    def run(self, decode: Callable[[bytes], object], numbers: Iterable[int]) -> None:
        """Reads the changed inputs of these numbers."""
        signal.signal(signal.SIGPROF, _stop)
        for number in numbers:
            chance = random.Random(number)
            good, other = chance.choice(self.good), chance.choice(self.good)
            kept = self.head(good)
            change, data = mutated(
                good[kept:], other[self.head(other) :], chance, keeps_length=self.keeps_length
            )
            data = good[:kept] + data
            if good.startswith(b"{") and chance.random() < 0.5:
                change, data = "other value", _with_other_value(good, chance)
            told = f"input {number} ({change}): {base64.b64encode(data).decode()}"
            limited.note(told)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            try:
                decode(data)
            except self.raises as raised:
                assert self.naming in str(raised), (str(raised), told)  # noqa: PT017
            except (Exception, _TooLong) as raised:
                raise AssertionError(f"{raised!r} of {told}") from raised
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
            assert grown < _MEGABYTES, f"{grown} MB for {told}"

    def read_good(self, folder: str) -> None:
        """Reads the good inputs as they are."""
        decode = self.prepared(folder)
        for data in self.good:
            with suppress(*self.raises):
                decode(data)


def golden_files(*patterns: str) -> list[bytes]:
    """Some of the files of the golden tables."""
    return [
        path.read_bytes()
        for one in patterns
        for path in sorted(GOLDEN.glob(f"**/db.db/t/{one}"))[::8][:12]
    ]


def of_file(decode: Callable[[bytes, str], Any], good: Sequence[bytes]) -> Decoder:
    """Of a file. Its errors name the file."""
    return Decoder(good=good, decode=lambda data: decode(data, PATH), naming=PATH)


def of_bytes(decode: Callable[[bytes], Any], good: Sequence[bytes]) -> Decoder:
    """Of bytes that are not a file."""
    return Decoder(good=good, decode=decode, raises=(FormatError,))


def never(decode: Callable[[bytes], Any], good: Sequence[bytes]) -> Decoder:
    """One that raises nothing."""
    return Decoder(good=good, decode=decode, raises=())


def of_text(
    decode: Callable[[str], Any],
    good: Sequence[str],
    raises: tuple[type[Exception], ...],
    naming: str = "",
) -> Decoder:
    """Of a text, which may hold what is not UTF-8 as the names of files do."""
    return Decoder(
        good=[one.encode() for one in good],
        decode=lambda data: decode(data.decode(errors="surrogateescape")),
        raises=raises,
        naming=naming,
    )
