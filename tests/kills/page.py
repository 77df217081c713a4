"""The table of the kills, as a part of docs/reliability.md.

python -m tests.kills.page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.kills.portions import Portion, read, together
from tests.kits.pages import written_into

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
PART = "kills"


def render(portions: Sequence[Portion]) -> str:
    """The kills in Markdown, those of the newest version."""
    if not portions:
        return "No portion is there yet."
    versions = [one.version for one in portions]
    latest = [one for one in portions if one.version == versions[-1]]
    rows = together(row for one in latest for row in one.rows)
    kills = sum(row.kills for row in rows)
    failures = sum(len(one.failures) for one in latest)
    killing = [one for one in latest if one.kills]
    seconds = sum(one.seconds for one in killing) / max(1, kills)
    many = [crowd for one in latest for crowd in one.crowds]
    hows: Counter[str] = sum((one.hows for one in latest), Counter())
    moments: Counter[str] = sum((one.moments for one in latest), Counter())
    first, last = latest[0].date, latest[-1].date
    days = first if first == last else f"{first} to {last}"
    lines = [
        f"Version {versions[-1]}, {days}, by `make torture-kills`: {kills:,} kills in "
        f"{len(killing)} portions, {failures} failure{'' if failures == 1 else 's'}, "
        f"{seconds:.1f} seconds of processors for a kill.",
        "",
        "| stream | table on | streams | kills | batches | rows read back |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.place} | {row.streams} | {row.kills} | {row.batches:,} | {row.rows:,} |"
            for row in rows
        ),
        "",
        "| how a process was to die | kills |",
        "|---|---|",
        *(f"| {how} | {count} |" for how, count in sorted(hows.items())),
        "",
        "| what it had done last | kills |",
        "|---|---|",
        *(f"| {moment} | {count} |" for moment, count in sorted(moments.items())),
    ]
    if many:
        lines += [
            "",
            "| many writers at once | commits of ours | snapshots they tried | commits of Java | seconds |",
            "|---|---|---|---|---|",
            *(
                f"| {one.who} | {one.commits:,} | {one.attempts:,} | {one.by_java} | {one.seconds:,} |"
                for one in many
            ),
        ]
    return "\n".join(lines)


def write(portions: Sequence[Portion]) -> None:
    """Writes them into the page."""
    PAGE.write_text(written_into(PAGE.read_text(), PART, render(portions)))


if __name__ == "__main__":
    write(read())
