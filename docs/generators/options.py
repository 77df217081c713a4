"""Renders `docs/options.md` from the option tables.

python -m docs.generators.options > docs/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from paimon_stream.options import Option, sink_options, table_options
from paimon_stream.options.of_newer import NEWER_OPTIONS, NewerOptions

__all__ = ["cells", "newer_cells", "render", "rows"]

_START: Final = """\
# Options

<!-- Generated: python -m docs.generators.options > docs/options.md -->

Keys are looked up regardless of case.

- A size is written like `128 mb`. Its units are b, kb, mb, gb and tb, each 1024 times the one before. A
  number without a unit is bytes.
- A duration is written like `10 min`. Its units are ms, s, min, h and d. A number without a unit is
  milliseconds.
- A switch is `true` or `false`.
"""

_SINK: Final = """\

## Sink options

Sink options belong to one `PaimonSink`, and their names begin with `paimon-stream.`. A sink refuses a sink
option that does not exist, and suggests the nearest name. A table cannot have them: `create` and `alter_table`
refuse them, and those that another engine has stored in a table's schema have no effect. A warning names them
when a writer begins. Remove them by Paimon's `ALTER TABLE … RESET`, or by
`alter_table(…, [SchemaChange.remove_option(…)])`, and give them to each sink that needs them.

Writers without a stream take some: `PaimonTable.new_commit(user, options=…)` takes
`paimon-stream.commit.guard`, `paimon-stream.on-unknown-history` and `paimon-stream.protect-last-snapshot`,
`append` and `overwrite` have arguments of their own, and `paimon-stream.store.*` and
`paimon-stream.unsafe-single-writer` are storage options.
"""

_TABLE: Final = """\

## Table options

Table options are stored in the table's schema under Paimon's own names. A sink's `options` may override them
for its own writes. A value that does not parse is refused. An option that is neither listed here nor known to
Paimon is kept, with a warning. Options of Paimon that concern only readers or other writers are kept without
a warning. Given to one read or one sink that does not follow them, they have no effect, and a warning names
them. A read is refused if other rows would come by them, such as `scan.version`, unless the value is Paimon's default.
"""

_NEWER: Final = """\

## Options after Paimon 1.4

Paimon 2.0 and pypaimon 2.1 have these options, of which Paimon 1.4.2 knows only some. *Refused* means that this package ends
with `UnsupportedFeature` before it reads, writes or compacts such a table, and *a warning* that it writes one line into the
log when a stream or another writer begins.
"""

_ALIASES: Final = """\

## Other names

These names are accepted, too. Where Paimon itself does not know such a name of a table option, there is a
warning.
"""


def render() -> str:
    """The whole page, in Markdown."""
    options = (*sink_options(), *table_options())
    aliases = [(alias, option.key) for option in options for alias in option.aliases]
    return "".join(
        (
            _START,
            _SINK,
            rows(("Option", "Default", "What it does"), map(cells, sink_options())),
            _TABLE,
            rows(("Option", "Default", "What it does"), map(cells, table_options())),
            _NEWER,
            rows(("Options", "What is done", "What that means"), map(newer_cells, NEWER_OPTIONS)),
            _ALIASES,
            rows(("Name", "Means"), ((f"`{alias}`", f"`{key}`") for alias, key in sorted(aliases))),
        )
    )


def cells(option: Option[Any]) -> tuple[str, ...]:
    """The cells of an option's row."""
    default = f"`{option.default}`" if option.default else "none"
    return f"`{option.key}`", default, option.doc


def newer_cells(newer: NewerOptions) -> tuple[str, ...]:
    """The cells of the row of options that came after Paimon 1.4."""
    return ", ".join(f"`{key}`" for key in newer.keys), newer.treatment.value, newer.why


def rows(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, tuple("---" for _ in head), *body]
    return "\n" + "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    sys.stdout.write(render())
