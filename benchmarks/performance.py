"""Makes docs/performance.md from the results of the benchmarks.

    python benchmarks/performance.py build/bench/*.json > docs/performance.md

Reads the output of `benchmarks/streams.py --json`, and files of rows that other benchmarks write:
{"kind": "rows", "section", "title", "date", "machine", "note", "rows": [{"name", "unit", "systems":
{name: number}, "goal", "met", "note"}]}. A file may also have the rows alone; then its name is the
section. An object of several numbers may stand in place of a number. The output of
`benchmarks/threads.py --json` and of `benchmarks/split.py --json` becomes a chart. benchmarks/performance.txt, in Markdown, is added at
the end. It has the text that no script can make: the method, and what profiles show.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from peers.machine import machine  # noqa: E402
from threads import picture  # noqa: E402

SECTIONS = {
    "commits": "Commits",
    "growth": "As a table grows",
    "restart": "A restart",
    "replay": "A batch that is run again",
    "memory": "Memory",
}
NAMES = {
    "noop": "noop",
    "drop": "Python workers that drop the rows",
    "parquet": "Spark's Parquet sink",
    "ours": "**ours**",
    "iceberg": "Iceberg's sink",
    "delta": "Delta's sink",
    "jar": "Paimon's sink for Spark 3.5, 0.9.0",
    "pypaimon": "pypaimon on the driver",
    "java": "Java Paimon",
}
HEAD = "# Performance\n"
APPENDIX = """## Appendix: all figures

`make bench PAGES=docs` makes this page. The text at its end is
`benchmarks/performance.txt`. All figures of a table are from one run on one machine: compare them with one
another, not with other pages.
"""
SUMMARY = {
    "L1": ("appending", ["parquet", "jar"]),
    "L4": ("upserting by primary key", ["jar", "iceberg", "delta"]),
}
BAR = 30


def main() -> None:
    """Prints the page."""
    print(page_of([Path(name) for name in sys.argv[1:]]), end="")


def page_of(files: list[Path]) -> str:
    """The page that shows the figures of these files."""
    found = [read(file) for file in files]
    streams = [one for one in found if one["kind"] == "streams"]
    rows = [one for one in found if one["kind"] == "rows"]
    pictures = [one for one in found if one["kind"] == "parts"]
    parts = [
        HEAD,
        summary(streams, rows),
        *charts(streams),
        APPENDIX,
        conditions(found),
        goals(streams, rows),
    ]
    parts += streams_part(streams)
    known = [name for name in SECTIONS if any(one["section"] == name for one in rows)]
    for section in [*known, *sorted({one["section"] for one in rows} - SECTIONS.keys())]:
        parts.append(f"## {SECTIONS.get(section, section.capitalize())}\n")
        parts += [rows_part(one) for one in rows if one["section"] == section]
    if pictures:
        parts += ["## Where the CPU goes\n", *map(bars, pictures)]
    parts.append((HERE / "performance.txt").read_text())
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def read(path: Path) -> dict[str, Any]:
    """The result in a file. If the file has the rows alone, the other fields are added."""
    found = json.loads(path.read_text())
    if isinstance(found, dict):
        return found
    section = path.stem.lstrip("0123456789-")
    date = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc).date()
    return {
        "kind": "rows",
        "section": section,
        "title": "",
        "date": date.isoformat(),
        "machine": machine(),
        "rows": found,
    }


def summary(streams: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """What readers want to know first: ours compared with the others, least to most over all
    runs.
    """
    lines = []
    for load, (what, peers) in SUMMARY.items():
        shares = [
            f"{span(streams, load, peer)} of {title(peer)}"
            for peer in peers
            if span(streams, load, peer)
        ]
        if shares:
            lines.append(f"- CPU of **{what}**: {', '.join(shares)}.\n")
    beside_java = []
    for row in (row for one in rows for row in one["rows"] if row["name"].startswith("commit of")):
        values = row["systems"]
        if isinstance(values.get("java"), dict):
            beside_java.append((row["name"], values["ours"]["wall"] / values["java"]["wall"]))
    shares = []
    for name in dict.fromkeys(name for name, _ in beside_java):
        ratios = [ratio for other, ratio in beside_java if other == name]
        shares.append(f"{least_to_most(ratios)} ({name.removeprefix('commit of ')})")
    if shares:
        lines.append(f"- Time of **a commit**: {', '.join(shares)} of Java Paimon.\n")
    return "".join(lines)


def span(streams: list[dict[str, Any]], load: str, peer: str) -> str:
    """Our CPU divided by a peer's in a load, least to most over all runs; empty if no run has
    both.
    """
    both = [run["loads"][load]["systems"] for run in streams if load in run["loads"]]
    return least_to_most(
        [one["ours"]["cpu"] / one[peer]["cpu"] for one in both if "ours" in one and peer in one]
    )


def least_to_most(ratios: list[float]) -> str:
    """The range of the ratios, such as 0.49 to 0.58."""
    low, high = f"{min(ratios, default=0):.2f}", f"{max(ratios, default=0):.2f}"
    return "" if not ratios else low if low == high else f"{low} to {high}"


def charts(streams: list[dict[str, Any]]) -> list[str]:
    """The CPU of a stream in each system, ours = 1, for each load of the summary, from the run with
    the most systems.
    """
    parts = []
    for load in SUMMARY:
        runs = [(run, run["loads"][load]) for run in streams if load in run["loads"]]
        runs = [(run, one) for run, one in runs if "ours" in one["systems"]]
        if runs:
            run, one = max(runs, key=lambda pair: len(pair[1]["systems"]))
            parts.append(
                chart(
                    f"{load}: {one['title']}, {size_of(one)} rows, Spark {spark_of(run)}",
                    one["systems"],
                )
            )
    return parts


def chart(heading: str, systems: dict[str, Any]) -> str:
    """A bar for each system that writes, sorted by CPU."""
    shares = {
        name: one["cpu"] / systems["ours"]["cpu"]
        for name, one in systems.items()
        if name not in ("noop", "drop")
    }
    lines = [f"{heading}; CPU, ours = 1.0", ""]
    for name, share in sorted(shares.items(), key=lambda item: item[1]):
        bar = "█" * max(1, round(BAR * share / max(shares.values())))
        lines.append(f"{title(name).strip('*'):36} {share:4.1f}  {bar}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def conditions(found: list[dict[str, Any]]) -> str:
    """The dates, machines and versions of the measurements."""
    if not found:
        return "No figures yet.\n"
    dates = sorted({one["date"] for one in found})
    lines = []
    for one in found:
        machine = one["machine"]
        line = f"{cores_of(machine)}, {machine['memory_gib']} GiB of memory, {machine['system']}"
        lines += [line] if line not in lines else []
    versions: dict[str, set[str]] = {}
    for one in found:
        for system in one.get("versions", {}).values():
            for name, version in system.items():
                versions.setdefault(name, set()).add(version)
    with_what = ", ".join(f"{name} {' and '.join(sorted(all_))}" for name, all_ in versions.items())
    return f"Measured {' and '.join(dates)}; {'; '.join([*lines, *([with_what] if with_what else [])])}.\n"


def goals(streams: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """Every goal, and whether it is met."""
    lines: list[list[str]] = []

    def add(what: str, goal: str, found: str, verdict: bool | None) -> None:
        again = any(line[:2] == [what, goal] for line in lines)
        lines.append([f"{what}, another run" if again else what, goal, found, met(verdict)])

    for run in streams:
        for name, load in run["loads"].items():
            for goal in load["goals"]:
                if goal["system"] == "ours" and goal["value"] is not None:
                    where = f"{name}, Spark {spark_of(run)}, {size_of(load)}{on_one_core(run)}"
                    add(where, goal["text"], f"{goal['value']:.2f}", goal["met"])
    for one in rows:
        for row in one["rows"]:
            verdict = judged(row)
            if verdict is not None:
                found = ", ".join(number(value) for value in judged_values(row))
                add(row["name"], row["goal"], f"{found} {row['unit']}", verdict)
    if not lines:
        return ""
    return "## Goals\n\n" + table(["what", "goal", "found", ""], lines)


def judged(row: dict[str, Any]) -> bool | None:
    """Whether a row's goal, such as "≤ 12 ms", is met; None if it has no such goal."""
    limit = re.match(r"(?:≤|<=)?\s*([0-9.]+)", row.get("goal", ""))
    if row.get("met") is not None or limit is None:
        return row.get("met")
    values = row["systems"]["ours"]
    spread = "p99" in row["goal"] and values["p99"] > 5 * values["p50"]
    return not spread and max(judged_values(row)) <= float(limit.group(1))


def judged_values(row: dict[str, Any]) -> list[float]:
    """Our figures to which a goal applies."""
    values = row["systems"]["ours"]
    if not isinstance(values, dict):
        return [values]
    return [value for name, value in values.items() if name.startswith("p50 of")] or [
        *values.values()
    ][:1]


def met(value: bool | None) -> str:
    """The verdict as text."""
    return {True: "met", False: "**not met**", None: ""}[value]


def spark_of(run: dict[str, Any]) -> str:
    """The Spark version that most systems of the run use."""
    versions = [one["pyspark"] for one in run["versions"].values()]
    return max(set(versions), key=versions.count) if versions else "?"


def cores_of(machine: dict[str, Any]) -> str:
    """The number of cores, such as 2 cores."""
    return "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"


def on_one_core(run: dict[str, Any]) -> str:
    """What distinguishes a run that had one core only."""
    return ", on one core" if run["machine"]["cores"] == 1 else ""


def size_of(load: dict[str, Any]) -> str:
    """The size of a load, such as 10 × 200,000."""
    return f"{load['batches']} × {load['rows_per_batch']:,}"


def streams_part(runs: list[dict[str, Any]]) -> list[str]:
    """The tables of all runs of streams. Runs on the same Spark version are under one heading."""
    parts: list[str] = []
    named: set[tuple[str, str]] = set()
    for run in runs:
        spark = spark_of(run)
        if spark not in {one for one, _ in named}:
            parts.append(f"## Streams on Spark {spark}\n")
        named.add((spark, ""))
        for name, load in run["loads"].items():
            if name == "cold":
                parts.append(cold_part(load))
                continue
            heading = f"### {name}: {load['title']}, {size_of(load)} rows{on_one_core(run)}"
            again = ", another run" if (spark, heading) in named else ""
            named.add((spark, heading))
            parts += [f"{heading}{again}\n", cost_table(load), files_table(load)]
            missing = load["missing"].items()
            parts += [f"Not in this table: {title(system)} ({why}).\n" for system, why in missing]
    return parts


def cost_table(load: dict[str, Any]) -> str:
    """The table of CPU, wall clock and batch times."""
    systems = load["systems"]
    ours, noop = systems.get("ours"), systems.get("noop")
    heads = ["", "CPU s", "least – most", "ours ÷ it", "wall s", "ours ÷ it", "batch p50 ms", "p95"]
    heads += ["p50 over noop", "21st–40th", "last 20"] if load["batches"] >= 100 else []
    lines = []
    for name, one in systems.items():
        line = [title(name), f"{one['cpu']:.2f}", "{:.1f} – {:.1f}".format(*one["cpu_range"])]
        line += [ratio(ours, one, "cpu"), f"{one['wall']:.2f}", ratio(ours, one, "wall")]
        line += [f"{one['p50']:.0f}", f"{one['p95']:.0f}"]
        if load["batches"] >= 100:
            over = "" if noop is None else f"{one['p50'] - noop['p50']:+.0f}"
            line += [over, f"{one['first']:.0f}", f"{one['last']:.0f}"]
        lines.append(line)
    dropped = len(next(iter(load["all_rounds"].values()), [])) - load["rounds"]
    return (
        table(heads, lines)
        + f"\nRounds: {load['rounds']}, after {dropped} that were dropped; medians.\n"
    )


def files_table(load: dict[str, Any]) -> str:
    """The table of files and memory."""
    heads = [
        "",
        "files a batch",
        "KB a file",
        "MB in all",
        "peak MiB, driver",
        "JVM",
        "Python workers",
    ]
    lines = []
    for name, one in load["systems"].items():
        size = f"{one['bytes'] / one['files'] / 1e3:,.0f}" if one["files"] else ""
        memory = [f"{one['memory'].get(what, 0):,.0f}" for what in ("driver", "jvm", "workers")]
        files = f"{one['files'] / load['batches']:.1f}" if size else ""
        line = [title(name), files, size, f"{one['bytes'] / 1e6:,.1f}"]
        lines.append(line + memory)
    return table(heads, lines)


def cold_part(load: dict[str, Any]) -> str:
    """The table of the first batch of a process."""
    noop = load["systems"].get("noop")
    lines = []
    for name, one in load["systems"].items():
        over = "" if noop is None else f"{one['first_s'] - noop['first_s']:+.2f}"
        lines.append(
            [
                title(name),
                f"{one['session_s']:.1f}",
                f"{one['first_s']:.2f}",
                over,
                f"{one['cpu']:.1f}",
            ]
        )
    heads = ["", "session up, s", "start to first commit, s", "over noop", "CPU s of that"]
    about = f"### Start-up: {load['title']}, {load['rows_per_batch']:,} rows\n\n"
    return about + table(heads, lines) + f"\nNew processes each: {load['rounds']}; medians.\n"


def rows_part(one: dict[str, Any]) -> str:
    """The tables of another benchmark.

    The rows with one number for each system share one table. A row with several numbers for each
    system has a table of its own. The rows with several numbers for ours alone share a table with a
    column for each.
    """
    about = [f"### {one['title']}\n"] if one["title"] else []
    rows = one["rows"]
    several = [row for row in rows if isinstance(row["systems"].get("ours"), dict)]
    plain = [row for row in rows if row not in several]
    alone = [row for row in several if len(row["systems"]) == 1]
    parts = [numbers_table(plain)] if plain else []
    parts += [columns_table(alone)] if alone else []
    for row in several:
        if row not in alone:
            names = dict.fromkeys(name for values in row["systems"].values() for name in values)
            lines = [
                {
                    "name": name,
                    "unit": row["unit"],
                    "systems": {
                        system: values.get(name) for system, values in row["systems"].items()
                    },
                }
                for name in names
            ]
            note = f"\n{row['note']}\n" if row.get("note") else ""
            parts.append(f"### {row['name'].capitalize()}\n\n{numbers_table(lines)}{note}")
    parts += [f"{one['note']}\n"] if one.get("note") else []
    return "\n".join(about + parts)


def numbers_table(rows: list[dict[str, Any]]) -> str:
    """A table with a line for each row, a column for each system, and ratios."""
    names = list(dict.fromkeys(name for row in rows for name in row["systems"]))
    peers = [name for name in names if name != "ours"]
    plain = {"ours": title("ours"), "java": title("java")}
    notes = any(row.get("note") for row in rows)
    heads = ["", "unit", *(plain.get(name, name) for name in names)]
    heads += [f"ours ÷ {plain.get(name, name)}" for name in peers] + ([""] if notes else [])
    lines = []
    for row in rows:
        values = row["systems"]
        line = [row["name"], row["unit"], *(number(values.get(name)) for name in names)]
        for name in peers:
            both = values.get("ours") is not None and values.get(name)
            line.append(f"{values['ours'] / values[name]:.2f}" if both else "")
        lines.append(line + ([row.get("note", "")] if notes else []))
    return table(heads, lines)


def columns_table(rows: list[dict[str, Any]]) -> str:
    """A table with a line for each row, a column for each of its numbers, and the last number
    divided by the first.
    """
    names = list(dict.fromkeys(name for row in rows for name in row["systems"]["ours"]))
    lines = []
    for row in rows:
        values = row["systems"]["ours"]
        first, last = values.get(names[0]), values.get(names[-1])
        line = [row["name"], *(number(values.get(name)) for name in names)]
        lines.append([*line, f"{last / first:.2f}" if first and last is not None else ""])
    heads = [f"{int(name):,}" if name.isdigit() else name for name in names]
    return table(["", *heads, "last ÷ first"], lines)


def bars(one: dict[str, Any]) -> str:
    """The parts of each system's CPU, as lines of bars."""
    return "```\n" + "\n".join(picture(one)) + "\n```\n"


def title(name: str) -> str:
    """The name of a system for readers."""
    return NAMES.get(name, name)


def ratio(ours: dict[str, Any] | None, one: dict[str, Any], figure: str) -> str:
    """Our figure divided by another system's."""
    return (
        ""
        if ours is None or one is ours or not one[figure]
        else f"{ours[figure] / one[figure]:.2f}"
    )


def number(value: float | None) -> str:
    """The number with a sensible number of digits."""
    if value is None:
        return ""
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
    )


def table(heads: list[str], lines: list[list[str]]) -> str:
    """A Markdown table with figures aligned to the right."""
    rule = ["---"] + ["--:"] * (len(heads) - 1)
    return "".join("| " + " | ".join(line) + " |\n" for line in [heads, rule, *lines])


if __name__ == "__main__":
    main()
