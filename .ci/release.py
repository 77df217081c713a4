"""Releases the commit that is checked out: proves all that must hold, and then tags it.

Everything runs in a clean clone with a fresh home, under build/release. A step that has passed on
this commit is not run again, so a release that was stopped goes on. Nothing is tagged unless all
steps have passed. Nothing is uploaded.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
KILLS: Final = 1000
STEPS: Final = {
    "ci": (".ci/run",),
    "full": ("make", "test-full"),
    "kills": ("make", "torture-kills", f"KILLS={KILLS}"),
    "package": ("make", "package"),
    "twine": (".venv/bin/python", "-m", "twine", "check", "--strict"),
}
"""The commands that must pass, by the names of their logs. `twine` gets the two archives."""


def main() -> None:
    """Runs what has not passed yet on this commit, and tags it."""
    version = version_of(ROOT / "paimon_stream" / "_version.py")
    commit = git("rev-parse", "HEAD")
    obstacles = [*obstacles_of(version)]
    if obstacles:
        sys.exit("\n".join((f"{version} cannot be released:", *(f"- {why}" for why in obstacles))))
    folder = ROOT / "build" / "release" / commit
    clone = folder / "clone"
    if not clone.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        git("clone", "--quiet", str(ROOT), str(clone))
    for name, command in STEPS.items():
        step(name, command, folder, clone)
    if archives_of(clone, folder / "again", commit) != archives_of(clone, clone, commit):
        sys.exit(f"Two builds of {commit} differ: compare {clone}/build/dist and {folder}/again.")
    git("tag", "--annotate", f"v{version}", "--message", f"Version {version}", commit)
    print(f"v{version} is tagged. The archives are in {clone / 'build' / 'dist'}.")


def obstacles_of(version: str) -> list[str]:
    """What keeps this checkout from being released, before anything is run."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    checks = {
        "there are changes that are not committed": bool(git("status", "--porcelain")),
        f"the tag v{version} is there already": bool(git("tag", "--list", f"v{version}")),
        f"CHANGELOG.md has no section '## [{version}] - <date>'": not re.search(
            rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
        ),
        f"tests/persisted/{version} is missing: python -m tests.persisted.make": not (
            ROOT / "tests" / "persisted" / version
        ).is_dir(),
    }
    return [why for why, is_so in checks.items() if is_so]


def step(name: str, command: tuple[str, ...], folder: Path, clone: Path) -> None:
    """Runs one step, unless it has passed before. Its output is in a log beside the clone."""
    passed = folder / f"{name}.passed"
    if passed.exists():
        print(f"{name}: has passed before")
        return
    home = folder / "home"
    home.mkdir(exist_ok=True)
    archives = (clone / "build" / "dist").glob("paimon_stream*") if name == "twine" else ()
    print(f"{name}: {' '.join(command)}", flush=True)
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(
            [*command, *(str(archive) for archive in archives)],
            cwd=clone,
            env={**os.environ, "HOME": str(home)},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{name} failed: see {log.name}. Nothing is tagged.")
    passed.touch()


def archives_of(clone: Path, checkout: Path, commit: str) -> dict[str, bytes]:
    """The two archives of a checkout, by their names. A checkout that is missing is made and
    built.
    """
    if not checkout.is_dir():
        git("clone", "--quiet", str(ROOT), str(checkout))
        git("-C", str(checkout), "checkout", "--quiet", commit)
        python = str(clone / ".venv" / "bin" / "python")
        subprocess.run([python, ".ci/package.py"], cwd=checkout, check=True)
    dist = checkout / "build" / "dist"
    return {archive.name: archive.read_bytes() for archive in dist.glob("paimon_stream*")}


def version_of(path: Path) -> str:
    """The version that snapshots and archives carry."""
    match = re.search(r'__version__ = "(.+)"', path.read_text())
    if match is None:
        sys.exit(f"{path} has no __version__.")
    return match[1]


def git(*words: str) -> str:
    """The answer of a git command, which must succeed."""
    program = shutil.which("git") or sys.exit("git is needed and was not found.")
    done = subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(words)} failed:\n{done.stderr}")
    return done.stdout.strip()


main()
