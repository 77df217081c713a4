"""Turns the rounds of a load into medians, goals and a table."""

from __future__ import annotations

import statistics
from typing import Any

from .loads import Goal, Load

__all__ = ["cold_figures_of", "cold_table_of", "figures_of", "goals_of", "table_of"]

Rounds = list[dict[str, Any]]
Figures = dict[str, Any]
Systems = dict[str, Figures]


def figures_of(load: Load, rounds: Rounds, warm_up: dict[str, Any]) -> Figures:
    """Medians over the rounds. For batch times, the medians of the rounds' percentiles."""

    def middle(name: str) -> float:
        return float(statistics.median(one[name] for one in rounds))

    def of_batches(percent: float, start: int, end: int | None) -> float:
        return statistics.median(_percentile(one["batch_ms"][start:end], percent) for one in rounds)

    few = min(20, max(1, load.batches // 2))
    after = min(20, load.batches - few)
    return {
        "cpu": middle("cpu"),
        "cpu_range": [min(one["cpu"] for one in rounds), max(one["cpu"] for one in rounds)],
        "wall": middle("wall"),
        "wall_range": [min(one["wall"] for one in rounds), max(one["wall"] for one in rounds)],
        "p50": of_batches(50, 0, None),
        "p95": of_batches(95, 0, None),
        "first": of_batches(50, after, after + few),
        "last": of_batches(50, load.batches - few, None),
        "files": middle("files"),
        "bytes": middle("bytes"),
        "memory": warm_up.get("memory", {}),
        "rounds": len(rounds),
    }


def _percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def goals_of(load: Load, figures: Systems, others: dict[str, Systems]) -> list[dict[str, Any]]:
    """Each goal of a load for each variant of ours: the value, the limit, and whether the goal is
    met. The value is None if the peer was not in this run, or is not above the floor of the goal.
    """
    found = []
    for name in figures:
        if name.partition("@")[0].split("+")[0] == "ours":
            for goal in load.goals:
                value = _value(goal, name, figures, others)
                met = None if value is None else round(value, 2) <= goal.limit
                one = {
                    "system": name,
                    "text": goal.text,
                    "value": value,
                    "limit": goal.limit,
                    "met": met,
                }
                found.append(one)
    return found


def _value(goal: Goal, name: str, figures: Systems, others: dict[str, Systems]) -> float | None:
    among = figures if goal.peer_load is None else others.get(goal.peer_load, {})
    peer = among.get(name if goal.peer == "ours" else goal.peer)
    if peer is None or not peer[goal.figure]:
        return None
    mine, theirs = figures[name][goal.figure], peer[goal.figure]
    if goal.above is not None:
        if goal.above not in figures:
            return None
        floor = figures[goal.above][goal.figure]
        mine, theirs = mine - floor, max(theirs - floor, 0.0)
    if goal.minus:
        return float(mine - theirs)
    return float(mine / theirs) if theirs else None


def table_of(load: Load, result: dict[str, Any]) -> str:
    """The result of a load, as text."""
    figures: dict[str, Figures] = result["systems"]
    wide = max([12, *(len(name) + 1 for name in figures)])
    lines = [
        f"{load.name}: {load.title}; {load.batches} × {load.rows_per_batch:,} rows; medians of {result['rounds']}",
        f"{'':<{wide}}{'CPU s':>7}{'(least – most)':>16}{'wall s':>8}{'rows/s':>10}{'batch p50':>10}"
        f"{'p95':>7}{'early':>7}{'late':>7}{'files':>6}{'MB':>7}  peak MiB driver/JVM/workers",
    ]
    for name, one in figures.items():
        memory = "/".join(
            f"{one['memory'].get(what, 0):,.0f}" for what in ("driver", "jvm", "workers")
        )
        span = "({:.1f} – {:.1f})".format(*one["cpu_range"])
        lines.append(
            f"{name:<{wide}}{one['cpu']:>7.2f}{span:>16}{one['wall']:>8.2f}{load.rows / one['wall']:>10,.0f}"
            f"{one['p50']:>10.0f}{one['p95']:>7.0f}{one['first']:>7.0f}{one['last']:>7.0f}"
            f"{one['files']:>6.0f}{one['bytes'] / 1e6:>7.1f}  {memory}"
        )
    lines += [f"{name:<{wide}}not measured: {why}" for name, why in result["missing"].items()]
    lines += [_goal_line(goal) for goal in result["goals"]]
    lines += [f"read back: {name}: {how}" for name, how in result["checked"].items()]
    return "\n".join(lines)


def _goal_line(goal: dict[str, Any]) -> str:
    if goal["value"] is None:
        return f"goal: {goal['system']}: {goal['text']}: the peer is not in this run"
    verdict = "met" if goal["met"] else "NOT met"
    return f"goal: {goal['system']}: {goal['text']}: {goal['value']:.2f}: {verdict}"


def cold_figures_of(rounds: Rounds) -> Figures:
    """Medians of the seconds until a session is up, and of the seconds from a query's start to its
    first commit.
    """
    names = ("session_s", "first_s", "cpu")
    return {name: statistics.median(one[name] for one in rounds) for name in names}


def cold_table_of(load: Load, result: dict[str, Any]) -> str:
    """The result of the load `cold`, as text."""
    lines = [
        f"{load.name}: {load.title}; {load.rows_per_batch:,} rows; medians of {result['rounds']}",
        f"{'':<12}{'session up s':>14}{'start to first commit s':>25}{'its CPU s':>11}",
    ]
    for name, one in result["systems"].items():
        lines.append(
            f"{name:<12}{one['session_s']:>14.1f}{one['first_s']:>25.2f}{one['cpu']:>11.1f}"
        )
    lines += [f"{name:<12}not measured: {why}" for name, why in result["missing"].items()]
    lines += [_goal_line(goal) for goal in result["goals"]]
    return "\n".join(lines)
