"""Renders `docs/options.md` from the option tables.

python -m paimon_stream.options_doc > docs/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from paimon_stream.options import Option, sink_options, table_options

__all__ = ["render"]

_START: Final = """\
# Options

<!-- Generated: python -m paimon_stream.options_doc > docs/options.md -->

Keys are looked up regardless of case. Sizes are written like `128 mb` (units b, kb, mb, gb, tb, each 1024 of
the one before; a bare number is bytes), durations like `10 min` (units ms, s, min, h, d; a bare number is
milliseconds), switches as `true` or `false`.
"""

_SINK: Final = """\

## Sink options

They belong to one `PaimonSink` and begin with `paimon-stream.`. A sink refuses one that does not exist, and
names the nearest that does.
"""

_TABLE: Final = """\

## Table options

They live in the table's schema under Paimon's own names; a sink's `options` may override them for its own
writes. A value that does not parse is refused. An option that neither this table nor Paimon knows is kept,
with a warning; those of Paimon that only concern readers or other writers are kept in silence.
"""

_ALIASES: Final = """\

## Other names

These names are understood as well; names of table options with a warning, because Paimon itself does not know
them.
"""


def render() -> str:
    """The whole page, in Markdown."""
    options = (*sink_options(), *table_options())
    aliases = [(alias, option.key) for option in options for alias in option.aliases]
    return "".join(
        (
            _START,
            _SINK,
            _rows(("Option", "Default", "What it does"), map(_cells, sink_options())),
            _TABLE,
            _rows(("Option", "Default", "What it does"), map(_cells, table_options())),
            _ALIASES,
            _rows(("Name", "Means"), ((f"`{alias}`", f"`{key}`") for alias, key in sorted(aliases))),
        )
    )


def _cells(option: Option[Any]) -> tuple[str, ...]:
    default = f"`{option.default}`" if option.default else "none"
    return f"`{option.key}`", default, option.doc


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n" + "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    sys.stdout.write(render())
