"""The page for the person on call names everything that exists, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from paimon_stream import PaimonTable, errors
from paimon_stream.options import sink_options

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()

# Of what this release does not do yet: limited texts.
NOT_MET_YET = {"ValueTooLong"}
FAMILIES = {
    kind.__base__.__name__
    for kind in vars(errors).values()
    if isinstance(kind, type) and kind.__base__
}


def test_every_error_that_can_be_met_is_on_the_page() -> None:
    for name in errors.__all__:
        if name not in NOT_MET_YET | FAMILIES:
            assert f"`{name}`" in PAGE, name


def test_every_error_on_the_page_exists() -> None:
    for name in re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", PAGE):
        assert name in errors.__all__, name


def test_every_sink_option_on_the_page_exists() -> None:
    keys = {option.key for option in sink_options()}
    short = {key.removeprefix("paimon-stream.") for key in keys}
    for named in re.findall(r"`paimon-stream\.([a-z.-]+)`", PAGE):
        assert named in short | {"query-id"}, named
    for decided in re.findall(r"`(on-[a-z-]+)`", PAGE):
        assert decided in short, decided


def test_the_snippet_of_the_page_runs(tmp_path: Path) -> None:
    location = str(tmp_path / "db.db" / "t")
    table = PaimonTable.create(location, schema=[("id", "INT")])
    table.new_commit("etl").commit(0, [])
    snippet = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert snippet
    exec(snippet[1], {"location": location})
