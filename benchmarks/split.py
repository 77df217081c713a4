"""What the CPU of a stream is spent on: a line for each part of the work, from samples of stacks.

    python benchmarks/split.py                                   # L1: noop, drop, parquet and ours
    python benchmarks/split.py --load L2 --systems parquet,ours --rounds 5
    python benchmarks/split.py --first                           # the first stream of a new process, of one batch
    python benchmarks/split.py --unknown 20                      # also the frames that no part has, most costly first
    python benchmarks/split.py --within encode 15                # the stacks of a part

Loads and systems are those of `benchmarks/streams.py`. Each system runs the stream in a process and
a JVM of its own; the first streams are dropped. The figures are means of the others.

CPU seconds of processes and of the JVM's threads are read from /proc, as in `benchmarks/threads.py`.
Samples divide those of Java's other threads and of Python. Java Flight Recorder takes the samples of
the JVM every 10 ms. A thread in native code that waits is left out. Python's are taken each 5 ms of a
process's CPU, by a timer that stands still while it waits (`peers/sampler/sitecustomize.py`). The
innermost frame that a rule names decides the part of a sample. The samples themselves cost CPU. With
Flight Recorder, Java compiles three to six times as long as without it (`benchmarks/threads.py` takes no
samples). So compare the parts of a system, and take ratios of systems from `benchmarks/streams.py`.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.data import make_data  # noqa: E402
from peers.loads import COLD, LOADS, Load  # noqa: E402
from peers.machine import machine, today  # noqa: E402
from peers.parent import Peer  # noqa: E402
from peers.processes import members  # noqa: E402
from threads import PARTS, REST, parts  # noqa: E402

Stack = tuple[str, ...]
"""The frames, innermost first."""

OTHER = "other"
JVM, WORKERS, DRIVER = "JVM", "worker", "driver"

SCAN, PROJECTION = "scan", "projection"
RULES = {
    JVM: (
        ("socket", r"SocketDispatcher|SocketChannelImpl|SocketOutputStream|NioSocketImpl"),
        ("rows to Arrow", r"arrow|Arrow"),
        (
            "encode",
            r"parquet\.hadoop\.\w*(Writer|Write|OutputFormat)|parquet\.column\.\w+\.\w*Write|parquet\.column\.values\..*Writer"
            r"|MessageColumnIO|ParquetWriteSupport|ParquetOutputWriter|ZstandardOutput|ZstdOutputStream|ZstdCompressor",
        ),
        (SCAN, r"parquet|FileScanRDD|ColumnVector|zstd"),
        (PROJECTION, r"PROJECTION"),
        (SCAN, r"GeneratedIterator"),
        ("hadoop and checkpoint", r"apache\.hadoop|CheckpointFileManager|MetadataLog|FileStreamSource|jackson|json4s"),
        ("plan and generate code", r"janino|sql\.catalyst\.(?!util|expressions\.(codegen\.Unsafe|Unsafe|Generated|PROJECTION))|QueryExecution|CodeGenerator|sql\.classic\.Dataset|sql\.execution\.(adaptive|Spark)|streaming"),
        ("pass rows to the task", r"MapInBatch|api\.python"),
        ("schedule tasks", r"scheduler|Block|broadcast|TaskMetrics|ListenerBus|spark\.(storage|rpc|util|executor|memory|rdd|serializer|status)|java\.io\.Object(In|Out)put"),
        ("calls from Python", r"py4j"),
        ("load classes", r"ClassLoader|java\.util\.(zip|jar)|jdk\.internal\.loader|lang\.invoke"),
    ),
    WORKERS: (
        ("Python's start", r"importlib|zipimport|sitecustomize|daemon\.py"),
        ("statistics", r"file_stats|stats\.py|parquet_footer"),
        ("fsync and files", r"paimon_stream/storage"),
        ("encode", r"parquet_file|data_file|orc_file|parquet/core"),
        ("route", r"routing\.py"),
        ("conform", r"conform|cast_scalar"),
        ("read and decode", r"pyspark/.*(serializers|conversion)|pyarrow/ipc|arrow_batches\.py|spark/tasks\.py|map_arrow\.py"),
        ("answer", r"commit_message|encode_result"),
        ("read and decode", r"_counted"),
        ("fixed cost of a task", r"pyspark/|cloudpickle|gc"),
    ),
    DRIVER: (
        ("Python's start", r"importlib|zipimport"),
        ("commit", r"paimon_stream/(commit|stream|table|format|storage|maintenance)"),
        ("plan and calls to the JVM", r"paimon_stream/spark|pyspark|py4j"),
        ("commit", r"paimon_stream|pypaimon"),
    ),
}  # fmt: skip
"""For each kind of process, its parts and the frames that belong to them."""

_COMPILED = {
    kind: tuple((part, re.compile(pattern)) for part, pattern in rules)
    for kind, rules in RULES.items()
}
_WAITS = re.compile(
    r"(SocketDispatcher\.read|NioSocketImpl\.(read|park|accept)|[eE][pP]oll|Net\.(poll|accept)|Unsafe\.park|Object\.wait"
    r"|FileInputStream\.read|ProcessImpl\.waitFor|ProcessHandleImpl|ReferencePendingList)"
)
"""Native methods in which a thread waits."""

_EVENTS = ("jdk.ExecutionSample", "jdk.NativeMethodSample")
_FRAME = re.compile(r"^\s+([\w.$/<>]+)\(")
_GENERATED = "GeneratedIterator"


@dataclass
class Split:
    """What one system's measured streams took.

    Attributes:
        seconds: CPU seconds of each part, whose name begins with the kind of the process.
        stacks: the CPU seconds of each stack, by that name.
    """

    seconds: dict[str, float] = field(default_factory=partial(collections.defaultdict, float))
    stacks: dict[str, dict[Stack, float]] = field(default_factory=dict)

    def add(self, kind: str, stacks: Mapping[Stack, float], total: float) -> None:
        """Divides the seconds of a kind of process as its samples say."""
        sampled = sum(stacks.values())
        if not sampled:
            self.seconds[f"{kind}: {OTHER}"] += total
            return
        for stack, weight in stacks.items():
            name = f"{kind}: {part_of(kind, stack)}"
            seconds = weight * total / sampled
            self.seconds[name] += seconds
            of_name = self.stacks.setdefault(name, {})
            of_name[stack] = of_name.get(stack, 0.0) + seconds


def part_of(kind: str, stack: Stack) -> str:
    """The part that the innermost frame with a rule names."""
    for frame in stack:
        for part, pattern in _COMPILED[kind]:
            if pattern.search(frame):
                return part
    return OTHER


def main() -> None:
    """Measures, and prints a table for each system."""
    wanted = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="bench-split-"))
    splits: dict[str, Split] = {}
    load = COLD if wanted.first else LOADS[wanted.load]
    dropped, rounds = (0, 1) if wanted.first else (wanted.dropped, wanted.rounds)
    try:
        source = make_data(load, folder / "data")
        for name in wanted.systems.split(","):
            split = measured(name, load, source, folder, dropped, rounds, wanted.spark_python)
            splits[name] = split
            print("\n".join(table(f"{load.name}, {name}", split)), flush=True)
            for shown, count in wanted.within:
                print("\n".join(costly(split, shown, int(count))), flush=True)
            if wanted.unknown:
                print("\n".join(costly(split, OTHER, wanted.unknown)), flush=True)
        if wanted.json:
            wanted.json.write_text(
                json.dumps(result(load, splits, dropped, rounds), indent=1) + "\n"
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def result(load: Load, splits: dict[str, Split], dropped: int, rounds: int) -> dict[str, Any]:
    """What `benchmarks/performance.py` draws: the parts of each system that have a hundredth of it,
    the most costly first.
    """
    systems = {}
    for name, split in splits.items():
        total = sum(split.seconds.values())
        parts_of = sorted(split.seconds.items(), key=lambda part: -part[1])
        shown = {part: seconds for part, seconds in parts_of if seconds >= total / 100}
        systems[name] = {**shown, "all that is less than a hundredth": total - sum(shown.values())}
    return {
        "kind": "parts",
        "date": today(),
        "machine": machine(),
        "title": f"{load.name}: {load.title}; {load.all_rows:,} rows in {load.all_batches} batches; CPU "
        f"seconds of a stream after {dropped} others by samples of stacks, means of {rounds}",
        "systems": systems,
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--load", default="L1", choices=LOADS)
    parser.add_argument("--systems", default="noop,drop,parquet,ours")
    parser.add_argument("--dropped", type=int, default=4, help="dropped streams before (4)")
    parser.add_argument("--rounds", type=int, default=3, help="measured streams (3)")
    parser.add_argument("--first", action="store_true", help="the first batch of a new process")
    parser.add_argument("--unknown", type=int, default=0, metavar="N", help="stacks of no part")
    parser.add_argument(
        "--within", nargs=2, action="append", default=[], metavar=("PART", "N"), help="its stacks"
    )
    parser.add_argument(
        "--spark-python", default=sys.executable, help="the interpreter of the systems"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result goes")
    return parser.parse_args()


def measured(
    name: str, load: Load, source: Path, folder: Path, dropped: int, rounds: int, python: str
) -> Split:
    """Runs one system's streams. Returns the mean of those that are not dropped."""
    place = Path(tempfile.mkdtemp(dir=folder))
    samples = place / "samples"
    samples.mkdir()
    peer = Peer(name, place, python=python, memory="2g", limit=300, samples=samples)
    split = Split()
    try:
        peer.wait()
        for _ in range(dropped):
            peer.run(load, source)
        recording = place / "recording.jfr"
        jvm = next(member.pid for member in members(peer.session) if member.name == "java")
        with_jcmd(jvm, "JFR.start", "name=split", "settings=none", *switched_on())
        began, before = time.time(), parts(peer.session)
        for _ in range(rounds):
            peer.run(load, source)
        after = parts(peer.session)
        with_jcmd(jvm, "JFR.stop", "name=split", f"filename={recording}")
        taken = {part: (after[part] - before[part]) / rounds for part in PARTS}
        split.add(JVM, java_stacks(recording), taken.pop(REST))
        workers, driver = python_stacks(samples, peer.session, began)
        split.add(WORKERS, workers, taken.pop("Python workers"))
        split.add(DRIVER, driver, taken.pop("Python driver"))
        split.seconds.update(taken)
    finally:
        peer.close()
    return split


def switched_on() -> Iterator[str]:
    """The settings of the recording: samples of stacks, and nothing else."""
    for event in _EVENTS:
        yield f"+{event}#enabled=true"
        yield f"+{event}#period=10ms"


def with_jcmd(pid: int, *words: str) -> None:
    """Tells the JVM something. Raises `CalledProcessError` if it refuses."""
    subprocess.run(["jcmd", str(pid), *words], check=True, stdout=subprocess.DEVNULL)


def java_stacks(recording: Path) -> dict[Stack, int]:
    """The stacks of a recording, and how many samples each has. Those that wait are left out."""
    command = ["jfr", "print", "--events", ",".join(_EVENTS), "--stack-depth", "64", str(recording)]
    counts: collections.Counter[Stack] = collections.Counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as printed:
        assert printed.stdout is not None
        frames: list[str] = []
        for line in printed.stdout:
            match = _FRAME.match(line)
            if match:
                frames.append(match[1])
            elif line.startswith("}"):
                if frames and not _WAITS.search(frames[0]):
                    counts[tuple(frames)] += 1
                frames = []
    return with_projection(counts)


def with_projection(counts: collections.Counter[Stack]) -> collections.Counter[Stack]:
    """The stacks, in which the code that Spark generates for a projection of the sink has a name of
    its own. Such a projection calls the code of the scan, so there are stacks with both.
    """
    if max(map(stages, counts), default=0) < 2:
        return counts
    named: collections.Counter[Stack] = collections.Counter()
    for stack, count in counts.items():
        if stages(stack) == 1:
            stack = tuple(frame.replace(_GENERATED, "PROJECTION") for frame in stack)
        named[stack] += count
    return named


def stages(stack: Stack) -> int:
    """How many pieces of generated code the stack is in."""
    generated = [_GENERATED in frame for frame in stack]
    return sum(
        here and not inside for inside, here in zip([False, *generated], generated, strict=False)
    )


def python_stacks(
    samples: Path, driver: int, began: float
) -> tuple[dict[Stack, float], dict[Stack, float]]:
    """The CPU seconds of the stacks of workers, and of the driver, since that time."""
    of_workers: dict[Stack, float] = collections.defaultdict(float)
    of_driver: dict[Stack, float] = collections.defaultdict(float)
    for file in samples.iterdir():
        stacks = of_driver if file.name == str(driver) else of_workers
        for line in file.read_text().splitlines():
            at, cpu, frames = line.split("\t")
            if float(at) >= began:
                stacks[tuple(frames.split(";"))] += float(cpu)
    return of_workers, of_driver


def table(title: str, split: Split) -> Iterator[str]:
    """A line for each part, the most costly one of each kind of process first."""
    total = sum(split.seconds.values())
    yield f"\n{title}: {total:.2f} CPU s"
    for name, seconds in sorted(split.seconds.items(), key=lambda item: order(split, *item)):
        yield f"  {name:<40}{seconds:7.2f}{100 * seconds / total:6.1f} %"


def order(split: Split, name: str, seconds: float) -> tuple[float, str, float]:
    """The parts of one kind of process stand together, and the most costly kind first."""
    kind, colon, _ = name.partition(":")
    together = sum(value for part, value in split.seconds.items() if part.startswith(kind + colon))
    return -together, kind, -seconds


def costly(split: Split, part: str, count: int) -> Iterator[str]:
    """The most costly stacks of a part, of all kinds of processes."""
    stacks = [
        (seconds, name, stack)
        for name, of_name in split.stacks.items()
        if name.partition(": ")[2] == part
        for stack, seconds in of_name.items()
    ]
    for seconds, name, stack in sorted(stacks, reverse=True)[:count]:
        frames = (re.sub(r"^.*/|^.*\.(?=\w+\.[\w$<>]+$)", "", frame) for frame in stack[:7])
        shown = " < ".join(frames)
        yield f"    {seconds:6.3f}  {name}: {shown}"


if __name__ == "__main__":
    main()
