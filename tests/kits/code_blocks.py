"""The code blocks of the documentation, and how they are run: a page's blocks one after another, in
one folder.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from paimon_stream.cli.app import cli

BLOCK = re.compile(
    r"(?:^(?P<above>[^\n]*)\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
REASON = re.compile(r"<!-- not run: (?P<reason>\S.*\S) -->")
LANGUAGES = ("python", "bash")
DONE = (0, 5)
"""The exit codes of a command that did its work: 5 says that there is something to change, and
nothing was changed.
"""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block: where it begins, and why it is not run, if it is not."""

    page: str
    line: int
    language: str
    code: str
    not_run: str | None


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page whose language can be run."""
    text = path.read_text()
    for found in BLOCK.finditer(text):
        if found["language"] in LANGUAGES:
            marked = REASON.fullmatch((found["above"] or "").strip())
            yield Block(
                page=path.name,
                line=text.count("\n", 0, found.start("code")),
                language=found["language"],
                code=found["code"],
                not_run=marked and marked["reason"],
            )


@dataclass
class Page:
    """Runs the blocks of one page. The current folder must be a fresh one."""

    names: dict[str, Any] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Runs a block. What it fails with names the page and the line."""
        try:
            if block.language == "python":
                # With the line numbers of the page, so a traceback leads there.
                code = "\n" * block.line + block.code
                exec(compile(code, block.page, "exec"), self.names)
            else:
                for line in commands(block.code):
                    self._command(line)
        except Exception as error:
            raise AssertionError(
                f"{block.page}, block at line {block.line}: {type(error).__name__}: {error}"
            ) from error

    def _command(self, line: list[str]) -> None:
        assert line[0] == "paimon-stream", (
            f"only paimon-stream can be run here, not {line[0]}: mark the block"
        )
        result = CliRunner().invoke(cli, line[1:])
        assert result.exit_code in DONE, (
            f"{shlex.join(line)} ended with {result.exit_code}: {result.output}"
        )


def commands(code: str) -> Iterator[list[str]]:
    """The words of each command of a block in bash, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def enter(folder: Path, spark: Any) -> None:
    """Makes a folder the current one, for Python and for the JVM of a Spark session."""
    os.chdir(folder)
    jvm = spark.sparkContext._jvm
    # Spark resolves a relative checkpoint by the property, and other relative paths by the file
    # system's own folder.
    jvm.System.setProperty("user.dir", str(folder.resolve()))
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    jvm.org.apache.hadoop.fs.FileSystem.get(configuration).setWorkingDirectory(
        jvm.org.apache.hadoop.fs.Path(folder.resolve().as_uri())
    )
