"""The places that `tests.kits.legibility --places` lists."""

import textwrap

from tests.kits.legibility import parsed, places


def listed(source: str) -> list[str]:
    module = parsed("paimon_stream/x.py", textwrap.dedent(source))
    return [place.removeprefix("paimon_stream/x.py:") for place in places([module])]


def test_a_conditional_expression_is_listed_inside_an_expression_or_over_several_lines() -> None:
    source = """
    short = 1 if x else 2
    f(1 if x else 2)
    long = (
        1
        if x
        else 2
    )
    """
    assert listed(source) == [
        "3 a conditional expression inside another expression",
        "5 a conditional expression of several lines",
    ]


def test_long_functions_flags_and_late_attributes_are_listed() -> None:
    body = "\n".join(["        self.state = 1"] * 51)
    source = f"class Cache:\n    def fill(self, full: bool) -> None:\n{body}\n"
    assert listed(source) == [
        "1 Cache.state is set outside of the constructor",
        "2 fill has 1 boolean parameters",
        "2 fill has 52 lines",
    ]
