"""Measures every goal of the write path, and says which are met.

    python benchmarks/goals.py --results build/bench --rounds 5 --dropped 2     # what make bench runs
    python benchmarks/goals.py --results build/bench --only streams             # steps whose names contain that
    python benchmarks/goals.py --results build/bench --show                     # the goals of what is there
    python benchmarks/goals.py --results build/bench --pages docs               # also writes the pages

A step is a run of another benchmark, which leaves a file of figures. A step whose file is there is not
run again, so a run that was stopped goes on where it was, and a new folder begins anew. Runs on one core
are bound to it. At the end each goal is printed with what was found. `--pages` writes
performance.md, the tables of tuning.md and its pictures into that folder once all steps are done. Read
the text of both pages again then: it quotes figures.

Run it alone on the machine. CPU seconds are those of process trees and the competitors take turns, but
other work still changes caches and clock rates, and times of batches most of all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import performance
import tuning

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

SPARKS = {
    "newest": (".venv", ".venv-bench"),
    "4.0": (".venv-spark40", ".venv-bench40"),
    "3.5": (".venv-spark35", ".venv-bench35"),
}
"""The environment of the systems for each Spark, and that of pypaimon beside this Spark."""

FEW = "noop,drop,parquet,ours,pypaimon"
MANY = "noop,parquet,ours,iceberg,delta,jar,pypaimon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run of a benchmark.

    Attributes:
        name: of its file of figures. The page has them in the order of names.
        script: the benchmark.
        arguments: what it is given, without its file.
        spark: a key of `SPARKS`; None if the script takes no interpreters.
        one_core: whether all its processes share one core.
    """

    name: str
    script: str
    arguments: str = ""
    spark: str | None = None
    one_core: bool = False


def steps_of(rounds: int, dropped: int) -> list[Step]:
    """All steps. A benchmark that has rounds runs this number of them."""
    often = f"--rounds {rounds} --dropped {dropped} --starts {rounds}"
    return [
        Step(
            name="1-streams",
            script="streams",
            arguments=f"{often} --loads L1,L2,L5,L6,cold --systems {FEW}",
            spark="newest",
        ),
        Step(
            name="2-streams-spark40",
            script="streams",
            arguments=f"{often} --loads L1 --systems {FEW}",
            spark="4.0",
        ),
        Step(
            name="3-streams-spark35",
            script="streams",
            arguments=f"{often} --loads L1,L3,L4 --systems {MANY}",
            spark="3.5",
        ),
        Step(
            name="4-streams-large",
            script="streams",
            arguments="--rounds 1 --dropped 0 --loads L4 --large --limit 1200 --systems ours,jar,pypaimon",
            spark="3.5",
        ),
        *[
            Step(
                name=f"5-one-core-{spark}",
                script="streams",
                arguments=f"{often} --loads L1 --systems {FEW}",
                spark=spark,
                one_core=True,
            )
            for spark in SPARKS
        ],
        Step(name="6-commits", script="commits", arguments=f"--rounds {rounds} --row-rounds 1"),
        Step(
            name="7-growth",
            script="growth",
            arguments="--snapshots 10000 --marks 200,1000,3000,10000",
        ),
        Step(name="7-restart", script="restart", arguments=f"--rounds {rounds}"),
        Step(name="7-replay", script="replay", arguments=f"--rounds {rounds}"),
        Step(name="8-threads", script="threads"),
        Step(name="8-split", script="split", arguments="--systems noop,drop,parquet,ours"),
        Step(
            name="8-split-wide",
            script="split",
            arguments="--load L6 --systems noop,drop,parquet,ours",
        ),
        Step(name="8-split-first", script="split", arguments="--first --systems drop,parquet,ours"),
        Step(name="9-tuning", script="tuning", arguments=f"--rounds {min(rounds, 2)}"),
    ]


def main() -> None:
    """Runs what is missing, prints the goals, and writes the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("build/bench"))
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (5)")
    parser.add_argument("--dropped", type=int, default=2, help="dropped rounds before them (2)")
    parser.add_argument("--only", default="", metavar="TEXT", help="steps with this in their names")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="the folder of the pages")
    given = parser.parse_args()
    steps = steps_of(given.rounds, given.dropped)
    given.results.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for step in steps:
        if not given.show and given.only in step.name and not run(step, given.results):
            failed.append(step.name)
    show(steps, given.results)
    missing = [step.name for step in steps if not file_of(step, given.results).exists()]
    if given.pages and missing:
        sys.exit(f"The pages are not written. These steps are missing: {', '.join(missing)}.")
    if given.pages:
        write_pages(steps, given.results, given.pages)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


def file_of(step: Step, results: Path) -> Path:
    """The figures of a step that is done."""
    return results / f"{step.name}.json"


def run(step: Step, results: Path) -> bool:
    """Runs a step unless it is done. Returns whether it is done now."""
    done = file_of(step, results)
    if done.exists():
        return True
    print(f"== {step.name}", flush=True)
    unfinished = done.with_suffix(".unfinished")
    ended = subprocess.run(command_of(step, unfinished), check=False)
    if ended.returncode or not unfinished.exists():
        return False
    unfinished.rename(done)
    return True


def command_of(step: Step, file: Path) -> list[str]:
    """The command of a step, which leaves its figures in the file."""
    command = [sys.executable, str(HERE / f"{step.script}.py"), *step.arguments.split()]
    command += ["--out" if step.script == "tuning" else "--json", str(file)]
    if step.spark is not None:
        systems, pypaimon = (str(ROOT / place / "bin" / "python") for place in SPARKS[step.spark])
        command += ["--spark-python", systems, "--python", f"pypaimon={pypaimon}"]
    if step.one_core:
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    return command


def files_for_page(steps: list[Step], results: Path) -> list[Path]:
    """The figures that performance.md shows."""
    files = [file_of(step, results) for step in steps if step.script != "tuning"]
    return [file for file in files if file.exists()]


def show(steps: list[Step], results: Path) -> None:
    """Prints each goal, what was found, and whether it is met."""
    figures = [performance.read(file) for file in files_for_page(steps, results)]
    streams = [one for one in figures if one["kind"] == "streams"]
    rows = [one for one in figures if one["kind"] == "rows"]
    print(performance.goals(streams, rows))


def write_pages(steps: list[Step], results: Path, folder: Path) -> None:
    """Writes performance.md, and the tables and pictures of tuning.md."""
    page = performance.page_of(files_for_page(steps, results))
    (folder / "performance.md").write_text(page)
    figures = next(file_of(step, results) for step in steps if step.script == "tuning")
    tuning.fill(str(figures), str(folder / "tuning.md"))
    tuning.draw(str(figures), str(folder))


if __name__ == "__main__":
    main()
