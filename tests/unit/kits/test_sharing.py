"""How the processes of a run share the test files."""

from __future__ import annotations

from tests.kits.sharing import ROOT, choose, needed, read_costs

SPARK = "tests/spark/test_verdicts.py"
SHORT_SPARK = "tests/spark/test_small_batches.py"
JAVA = "tests/conformance/test_dynamic_buckets_beside_java.py"
PLAIN = "tests/unit/format/test_stats.py"


def test_each_file_with_a_recorded_cost_exists() -> None:
    gone = [file for file in read_costs() if not (ROOT / file).exists()]
    assert not gone, f"tests/costs.txt names {gone}: rename the files there, too"


def test_what_a_file_needs_is_read_from_its_fixtures() -> None:
    assert (needed(SHORT_SPARK), needed(JAVA), needed(PLAIN)) == ("Spark", "Java", None)


def test_a_process_goes_on_with_files_that_need_what_it_has_started() -> None:
    costs = {PLAIN: 4.0, JAVA: 3.0, SHORT_SPARK: 1.0, SPARK: 2.0, "a": 4.0, "b": 4.0, "c": 4.0}
    assert choose(costs, own={"Spark"}, others={"Java"}, processes=2) == SPARK
    assert choose(costs, own={"Java"}, others={"Spark"}, processes=2) == JAVA


def test_processes_begin_with_different_needs() -> None:
    costs = {PLAIN: 3.0, SPARK: 2.5, JAVA: 2.0, "a": 3.0, "b": 3.0, "c": 3.0, "d": 3.0}
    assert choose(costs, own=set(), others=set(), processes=3) == SPARK
    assert choose(costs, own=set(), others={"Spark"}, processes=3) == JAVA
    assert choose(costs, own=set(), others={"Spark", "Java"}, processes=3) == PLAIN


def test_a_second_session_of_spark_is_started_only_where_nothing_else_is_left() -> None:
    costs = {SPARK: 60.0, SHORT_SPARK: 30.0, JAVA: 3.0, PLAIN: 1.0}
    for own in ({"Java"}, set[str]()):
        taken = [costs.pop(choose(costs, own, others={"Spark"}, processes=2)) for _ in range(2)]
        assert 60.0 not in taken
        costs |= {JAVA: 3.0, PLAIN: 1.0}
    assert choose({SPARK: 60.0}, own={"Java"}, others={"Spark"}, processes=2) == SPARK


def test_a_file_that_would_hold_the_end_up_comes_first() -> None:
    costs = {PLAIN: 60.0, SPARK: 30.0, JAVA: 30.0}
    assert choose(costs, own={"Spark", "Java"}, others=set(), processes=2) == PLAIN
