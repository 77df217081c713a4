"""The notebook of the examples: its code runs, and it was executed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/quickstart.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_it_gives(tmp_path: Path) -> None:
    cells = [
        cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("text/html" in output["data"] for cell in cells for output in cell["outputs"]) >= 4
    code = "\n".join("".join(cell["source"]) for cell in cells)
    shown = 'print(sink.last_report, table.history()[0].rows, file=open("shown", "w"))\n'
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOK.parents[1])}
    subprocess.run(
        [sys.executable, "-c", f"{code}\n{shown}"],
        cwd=tmp_path,
        env=environment,
        timeout=900,
        check=True,
    )
    assert (
        (tmp_path / "shown")
        .read_text()
        .startswith("<CommitReport 2 committed as snapshot 3, 1000 rows in ")
    )
    assert (tmp_path / "shown").read_text().split()[-1] == "3000"
    assert "</html>" in (tmp_path / "ticks.html").read_text()
