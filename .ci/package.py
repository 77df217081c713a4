"""Builds the source archive and the wheel, and uses the wheel as somebody who installs it does.

Checks what is in both, installs the wheel into a fresh venv without any extra, and there makes a
table, writes and reads it. Without pyspark the import must stay below a limit, and the command line
must say which extra it needs. Writes what the wheel brought along to build/dist/sbom.json, in the
form of CycloneDX, and prints the SHA-256 of both archives, which depend on the commit alone.
"""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "build" / "dist"
IMPORT_SECONDS = 0.3
USE = """
import sys, tempfile, pyarrow as pa
from paimon_stream import PaimonTable
assert not {"pyspark", "pandas"} & set(sys.modules), "the import takes more than it needs"
with tempfile.TemporaryDirectory() as folder:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
    table = PaimonTable.create(f"{folder}/db.db/t", rows.schema, options={"bucket": "-1"})
    table.append(rows)
    assert table.to_arrow().sort_by("id").equals(rows), "the rows that are read are not those that were written"
    assert not table.verify().findings
"""


def run(*command: str | Path, **more: object) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def built() -> tuple[Path, Path]:
    """The new source archive and the wheel that was built from it. The same commit gives the same
    bytes.
    """
    for old in DIST.glob("paimon_stream*"):
        old.unlink()
    seconds = int(run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, env=environment)
    (source,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    repack(source, seconds)
    return source, wheel


def repack(source: Path, seconds: int) -> None:
    """Gives each file in the source archive the time of the commit, and no owner."""
    with tarfile.open(source) as packed:
        files = [
            (member, packed.extractfile(member).read())
            for member in packed.getmembers()
            if member.isfile()
        ]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in sorted(files, key=lambda file: file[0].name):
            entry = tarfile.TarInfo(member.name)
            entry.size = len(data)
            entry.mtime = seconds
            entry.mode = 0o755 if member.mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(data))
    source.write_bytes(gzip.compress(plain.getvalue(), mtime=seconds))


def check_contents(source: Path, wheel: Path) -> None:
    """The wheel has the package, its types and the licence, and nothing else. Both are small."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    files = {str(one.relative_to(ROOT)) for one in (ROOT / "paimon_stream").rglob("*.py")}
    wanted = files | {"paimon_stream/py.typed"}
    beside = [one for one in names if ".dist-info/" not in one]
    assert set(beside) == wanted, sorted(set(beside) ^ wanted)
    assert any(one.endswith("licenses/LICENSE") for one in names), "the wheel has no licence"
    with tarfile.open(source) as packed:
        others = {one.split("/")[1] for one in packed.getnames() if one.count("/")}
    assert not others & {"tests", "build", "demo-data"}, sorted(others)


def check_import(python: Path) -> float:
    """The least of some import times, in seconds: the machine may be busy."""
    timed = (
        "import time; t = time.perf_counter(); import paimon_stream; print(time.perf_counter() - t)"
    )
    seconds = min(float(run(python, "-c", timed)) for _ in range(5))
    assert seconds < IMPORT_SECONDS, (
        f"the import took {seconds:.2f} s, and {IMPORT_SECONDS} s are allowed"
    )
    return seconds


def check_command_line(folder: Path) -> None:
    """Without its extra it says in one line what to install."""
    asked = subprocess.run(
        [folder / "bin" / "paimon-stream", "--help"], capture_output=True, text=True, check=False
    )
    assert asked.returncode, "the command line needs an extra that nobody has installed"
    assert "extra 'cli'" in asked.stderr, asked.stderr
    assert "Traceback" not in asked.stderr, asked.stderr


def components(python: Path) -> list[dict[str, str]]:
    """What is installed, with versions and licences."""
    script = (
        "import json, importlib.metadata as m; print(json.dumps([[d.metadata['Name'], d.version, "
        "d.metadata.get('License-Expression') or d.metadata.get('License') or ''] for d in m.distributions()]))"
    )
    found = []
    for name, version, licence in sorted(json.loads(run(python, "-c", script))):
        plain = re.sub(r"[-_.]+", "-", name).lower()
        first = licence.splitlines()[0][:80] if licence else "see its files"
        one = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{plain}@{version}",
        }
        found.append({**one, "licenses": [{"license": {"name": first}}]})
    return found


def main() -> None:
    """Builds, checks, and prints what was seen."""
    source, wheel = built()
    check_contents(source, wheel)
    folder = ROOT / "build" / "venv-of-wheel"
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    elsewhere = folder  # where no source of the project is found
    run(python, "-c", USE, cwd=elsewhere)
    seconds = check_import(python)
    check_command_line(folder)
    parts = [one for one in components(python) if one["name"] not in ("pip", "setuptools")]
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": parts}
    (DIST / "sbom.json").write_text(json.dumps(bom, indent=1) + "\n")
    for archive in (source, wheel):
        print(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}")
    print(
        f"{wheel.name}: {wheel.stat().st_size // 1024} KiB, import in {seconds:.2f} s, {len(parts)} components"
    )


main()
