"""`examples/s3.py` says what is missing, and what it prints fits into 80 columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_without_its_packages_it_says_what_to_install() -> None:
    # Without `site` there are no installed packages.
    done = subprocess.run(
        [sys.executable, "-S", "-E", EXAMPLES / "s3.py"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "moto, obstore" in done.stderr
    assert "pip install 'moto[s3,server]' '.[store]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_its_tables_fit_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("moto", "obstore", "pyspark", "tqdm"):
        pytest.importorskip(package)
    sys.path.insert(0, str(EXAMPLES))
    import flights
    import s3
    from flights_check import Summary

    batch = {"batch": 9, "outcome": "committed", "reused": True, "files": 24}
    s3.print_runs([flights.Run(kill, [batch]) for kill in (*s3.KILLED, None)])
    days = {f"2013-{day:03}": "0" * 16 for day in range(90)}
    java = Summary("Java Paimon 1.4.2", 10**5, dict.fromkeys(s3.SUMMED, 10**9), days)
    assert flights.print_agreement(java, [java], s3.SUMMED)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) > 7
    assert max(map(len, printed)) <= 80
