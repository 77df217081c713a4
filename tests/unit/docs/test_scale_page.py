"""docs/scale.md is what its generator makes of the unit costs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generators import scale
from docs.generators.scale import Limit, Point, UnitCosts

ROOT = Path(__file__).parents[3]
COSTS = UnitCosts.parse((ROOT / "benchmarks" / "unit-costs.txt").read_text())


def with_points(*points: Point) -> UnitCosts:
    return replace(COSTS, steps={("files", "plan"): points})


def test_the_page_of_scale_is_current() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    assert page == scale.render(), "run: python -m docs.generators.scale > docs/scale.md"


def test_a_cost_is_on_the_line_through_the_last_decade() -> None:
    costs = with_points(Point(10, 9.0, 50.0), Point(100, 1.0, 60.0), Point(1_000, 10.0, 150.0))
    assert costs.cpu("files", "plan", 10_000) == pytest.approx(100)
    assert costs.memory("files", "plan", 2_000) == pytest.approx(250)
    assert costs.cpu_of_each("files", "plan") == pytest.approx(0.01)
    assert costs.exponent("files", "plan") == pytest.approx(1)


def test_a_computed_cost_beside_a_run_does_not_know_of_that_run() -> None:
    points = Point(10, 1.0, 50.0), Point(100, 10.0, 50.0), Point(1_000, 777.0, 50.0)
    assert with_points(*points).cpu("files", "plan", 1_000, below=1_000) == pytest.approx(100)


def test_a_step_that_gets_cheaper_counts_as_one_that_does_not_grow() -> None:
    costs = with_points(Point(100, 3.0, 50.0), Point(1_000, 2.0, 40.0))
    assert costs.cpu("files", "plan", 10**9) == 2.0
    assert scale.per(1.0, costs.cpu_of_each("files", "plan")) == math.inf


def test_the_first_limit_is_the_lowest() -> None:
    limits = [Limit(math.inf, "sky", "-"), Limit(50, "wall", "a door"), Limit(700, "fence", "-")]
    text = scale.limits_of("cars", limits)
    assert "**The first limit is wall, at 50 cars.** What moves it: a door." in text
    assert text.index("| wall | 50 |") < text.index("| fence | 700 |")
    assert "| sky | no limit measured |" in text


def test_a_step_that_grows_fast_needs_a_reason() -> None:
    costs = with_points(Point(100, 1.0, 50.0), Point(1_000, 50.0, 50.0))
    with pytest.raises(ValueError, match=r"without a reason in REASONS: \[\('files', 'plan'\)\]"):
        scale.growth(costs)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00456, "0.0046"),
        (0.5, "0.5"),
        (12.34, "12"),
        (456.7, "457"),
        (14_399_999.6, "14,400,000"),
    ],
)
def test_a_figure_has_two_or_three_digits(value: float, text: str) -> None:
    assert scale.number(value) == text


def test_unit_costs_of_an_unknown_kind_are_refused() -> None:
    text = (ROOT / "benchmarks" / "unit-costs.txt").read_text()
    with pytest.raises(ValueError, match="unknown kinds: colour"):
        UnitCosts.parse(text + "colour\tblue\n")
