"""The parts that all reports share: JSON, progress during the work, numbers in a form for people,
and which warnings are news.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import Any, ClassVar, Final, TypeAlias

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with three arguments: a word for what is counted, the amount that is done, and the total
amount, or None if the total is not known.
"""

_MILLIS: Final = dt.timedelta(milliseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


_LOGGED: Final[dict[tuple[str, str], int]] = {}
"""The warnings that this process has logged, by table and text, with what they counted."""


def is_news(location: str, warning: str, count: int = 1) -> bool:
    """Whether a warning about a table is to be logged: this process has not logged it yet, or what
    it counts has doubled since. A program that appends in a loop does not repeat it each time.

    Args:
        location: the table.
        warning: the text of the warning, without what it counts.
        count: what the warning counts; 1 if it counts nothing.
    """
    logged_count = _LOGGED.get((location, warning))
    if logged_count is not None and count < 2 * logged_count:
        return False
    _LOGGED[location, warning] = count
    return True


def silent(what: str, done: int, total: int | None) -> None:
    """Reports nothing."""


class Report:
    """A dataclass that can be turned into JSON."""

    __slots__ = ()

    also_in_json: ClassVar[tuple[str, ...]] = ()
    """The properties that the JSON has in addition to the fields."""

    def to_json(self) -> dict[str, Any]:
        """The report as values for JSON. The table's location, if there is one, comes first, as
        `table`.
        """
        fields: Any = self
        names = (*(field.name for field in dataclasses.fields(fields)), *self.also_in_json)
        return {
            ("table" if name == "location" else name): _json_value(getattr(self, name))
            for name in names
        }


def _json_value(value: Any) -> Any:
    """The value in a form that JSON has."""
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, Report):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, (dt.date, dt.time, Decimal)):
        return str(value)
    return value


def size(bytes_: int, least: str = "B") -> str:
    """A number of bytes in readable form: `1.5 MiB`. `least` is the unit of sizes below 1024."""
    if bytes_ < 1024:
        return f"{bytes_} {least}"
    scaled = float(bytes_)
    steps = 0
    while scaled >= 1024 and steps < len(_UNITS):
        scaled /= 1024
        steps += 1
    return f"{scaled:.1f} {_UNITS[steps - 1]}"


def span(millis: float) -> str:
    """A time for people, of at most six characters: `95 ms`, `12 s`, `3 min`, `40 h`, `9 d`."""
    if millis < 1000:
        return f"{millis:.0f} ms"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if millis >= 2 * length:
            return f"{millis / length:.0f} {unit}"
    return f"{millis / 1000:.0f} s"


def iso(millis: int | None) -> str | None:
    """Epoch milliseconds as ISO 8601 in UTC, `2026-11-21T19:18:29.004Z`. The result is None if
    `millis` is None, and for a time before year 1 or after year 9999.
    """
    if millis is None:
        return None
    try:
        return (_EPOCH + millis * _MILLIS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A small table in HTML for notebooks. All texts are escaped, and None becomes an empty
    cell.
    """

    def line(cells: Sequence[object], tag: str) -> str:
        texts = [escape(_cell(cell)) for cell in cells]
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    head = line(header, "th")
    body = "".join(line(row, "td") for row in rows)
    return f"<p>{escape(title)}</p><table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 file`, `2,000 files`, `2 batches`."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {_plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("ry"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"
