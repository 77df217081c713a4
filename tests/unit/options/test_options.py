"""Options: what is declared, how texts are read, and what is refused."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.generators import options as generator
from docs.generators import stores
from paimon_stream import options as declared
from paimon_stream.errors import InvalidOption
from paimon_stream.options import (
    FOLLOWED_BY_READS,
    SINK_PREFIX,
    Option,
    Options,
    check_sink_options,
    check_table_options,
    check_unfollowed_reads,
    is_known,
    sink_options,
    table_options,
    warn_of_unfollowed_writes,
)
from paimon_stream.options.of_newer import NEWER_OPTIONS, Treatment
from paimon_stream.options.of_others import CHOOSING_ROWS, OF_OTHERS

ALL = (*table_options(), *sink_options())
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "options.md"


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.key)
def test_every_option_is_documented_and_its_default_parses(option: Option[Any]) -> None:
    assert option.doc.endswith((".", ".)"))
    assert option.key == option.key.lower()
    assert option.key.startswith(SINK_PREFIX) == (option in sink_options())
    if option.default is not None:
        Options({}).value(option)


def test_no_key_or_alias_is_declared_twice() -> None:
    names = [name for option in ALL for name in (option.key, *option.aliases)]
    assert len(names) == len(set(names))


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == generator.render(), (
        "run: python -m docs.generators.options > docs/options.md"
    )


def test_the_page_of_stores_is_what_the_tables_say() -> None:
    page = PAGE.with_name("stores.md").read_text()
    assert page == stores.render(), "run: python -m docs.generators.stores > docs/stores.md"


def test_the_page_names_every_option_and_alias() -> None:
    page = generator.render()
    for option in ALL:
        for name in (option.key, *option.aliases):
            assert f"| `{name}` |" in page


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("17b", 17),
        ("1 kb", 1024),
        ("1k", 1024),
        ("128 mb", 128 << 20),
        ("128MB", 128 << 20),
        (" 2 g ", 2 << 30),
        ("1 tebibytes", 1 << 40),
        ("1 m", 1 << 20),
    ],
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert Options({"target-file-size": text}).value(declared.TARGET_FILE_SIZE) == size


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("250", 250),
        ("10 ms", 10),
        ("1 s", 1000),
        ("10 min", 600_000),
        ("1h", 3_600_000),
        ("2 days", 172_800_000),
        ("1 m", 60_000),
        (" 3 SECONDS ", 3000),
    ],
)
def test_durations_are_milliseconds(text: str, millis: int) -> None:
    assert Options({"commit.timeout": text}).value(declared.COMMIT_TIMEOUT) == millis


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("target-file-size", "big"),
        ("target-file-size", "-1 mb"),
        ("target-file-size", "1.5 gb"),
        ("target-file-size", ""),
        ("target-file-size", "1 h"),
        ("commit.timeout", "1 mb"),
        ("commit.timeout", "soon"),
        ("bucket", "two"),
        ("bucket", ""),
        ("bucket", "1.5"),
        ("manifest.merge-min-count", "0"),
        ("write-only", "yes"),
        ("write-only", ""),
        ("file.compression.zstd-level", str(2**31)),
        ("file.compression.zstd-level", "high"),
        ("bucket-function.type", "md5"),
        ("manifest.format", "orc"),
        ("sink.process-time-zone", "B/e/" * 300 + "x"),
        ("paimon-stream.on-checkpoint-reset", "ignore"),
        ("paimon-stream.commit.guard", ""),
    ],
)
def test_a_text_that_does_not_parse_is_refused_with_key_and_text(key: str, text: str) -> None:
    option = next(option for option in ALL if option.key == key)
    with pytest.raises(InvalidOption) as raised:
        Options({key: text}).value(option)
    assert repr(key) in str(raised.value)
    assert repr(text) in str(raised.value)
    assert raised.value.context == {"option": key, "value": text}
    with pytest.raises(InvalidOption):
        (check_sink_options if option in sink_options() else check_table_options)({key: text})


def test_overrides_win_and_keys_ignore_case() -> None:
    options = Options({"Bucket": "4", "write-only": "true"}, {"BUCKET": 8})
    assert options.value(declared.BUCKET) == 8
    assert options.value(declared.WRITE_ONLY) is True
    assert options["bUcKeT"] == "8"
    assert sorted(options) == ["bucket", "write-only"]
    assert len(options) == 2


def test_python_values_are_read_as_text() -> None:
    options = Options({"write-only": True, "bucket": 3})  # type: ignore[dict-item]
    assert options.value(declared.WRITE_ONLY) is True
    assert options.value(declared.BUCKET) == 3


def test_an_alias_is_read_where_the_key_is_missing() -> None:
    assert Options({"commit-max-retries": "3"}).value(declared.COMMIT_MAX_RETRIES) == 3
    both = Options({"commit-max-retries": "3", "commit.max-retries": "4"})
    assert both.value(declared.COMMIT_MAX_RETRIES) == 4
    assert Options({"commit-max-retries": "3"}).is_set(declared.COMMIT_MAX_RETRIES)


def test_an_alias_of_paimon_counts_in_silence() -> None:
    skips = {"write.compaction-skip": "true"}
    assert Options(skips).value(declared.WRITE_ONLY) is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_table_options(skips)


def test_a_missing_option_has_its_default_or_is_an_error() -> None:
    assert Options({}).value(declared.COMMIT_TIMEOUT) == 600_000
    assert not Options({}).is_set(declared.COMMIT_TIMEOUT)
    with pytest.raises(InvalidOption, match="'bucket-key' is needed, but it is not set"):
        Options({}).value(declared.BUCKET_KEY)


def test_a_repr_shows_keys_and_no_values() -> None:
    assert (
        repr(Options({"s3.secret-key": "SECRET", "bucket": "1"}))
        == "Options(bucket, s3.secret-key)"
    )


def test_options_pickle() -> None:
    options = pickle.loads(pickle.dumps(Options({"bucket": "4"})))
    assert options.value(declared.BUCKET) == 4


def test_an_unknown_sink_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        InvalidOption, match=r"Did you mean 'paimon-stream\.on-checkpoint-reset'\?"
    ) as raised:
        check_sink_options({"Paimon-Stream.On-Checkpoint-Rest": "fail"})
    assert raised.value.context == {"option": "paimon-stream.on-checkpoint-rest"}
    with pytest.raises(InvalidOption):
        check_sink_options({"paimon-stream.zzz": "1"})


def test_a_sink_takes_table_options_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_sink_options({"paimon-stream.journal": "false", "target-file-size": "1 mb"})
    with pytest.raises(InvalidOption):
        check_sink_options({"target-file-size": "much"})


def test_a_sink_option_in_a_table_is_refused() -> None:
    with pytest.raises(InvalidOption, match="belongs to a sink"):
        check_table_options({"paimon-stream.journal": "true"})


def test_an_unknown_table_option_is_warned_of_with_the_nearest() -> None:
    with pytest.warns(
        UserWarning, match=r"'target-fil-size'\. Did you mean 'target-file-size'\?"
    ) as caught:
        check_table_options({"target-fil-size": "1 mb"})
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("key", "meant"), [("sequence-field", "sequence.field"), ("mergeengine", "merge-engine")]
)
def test_of_an_unknown_option_the_one_that_was_meant_is_named(key: str, meant: str) -> None:
    with pytest.warns(UserWarning, match=f"Did you mean {re.escape(repr(meant))}"):
        check_sink_options({key: "op"})


@pytest.mark.parametrize("key", ["write.merge-schema", "Write.Merge-Schema"])
def test_a_sink_option_by_the_name_that_paimon_has_for_it_is_known(key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_sink_options({key: "true"})
        check_sink_options({key: "true"}, additional=["path"])
        check_table_options({key: "true"})


@pytest.mark.parametrize("key", ["merge-schema", "Operation-Column", "commit.guard", "journal"])
def test_a_sink_option_without_its_prefix_is_refused_with_its_name(key: str) -> None:
    name = f"paimon-stream.{key.lower()}"
    with pytest.raises(InvalidOption, match=f"'{key.lower()}' lacks its prefix. Write '{name}'"):
        check_sink_options({key: "add"})
    with pytest.raises(InvalidOption, match=rf"belongs to a sink.* options={{'{name}': 'add'}}"):
        check_table_options({key: "add"})


@pytest.mark.parametrize("key", ["bucket", "manifest.merge-min-count"])
def test_a_word_for_a_number_is_refused_in_words_of_ours(key: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        check_table_options({key: "three"})
    assert str(raised.value) == f"Option {key!r} is 'three': not a whole number such as '4'."


def test_options_of_a_table_name_it() -> None:
    with pytest.raises(InvalidOption, match=r"^/w/t: Option 'bucket' is 'x'") as raised:
        Options({"bucket": "x"}, location="/w/t").value(declared.BUCKET)
    assert raised.value.context == {"table": "/w/t", "option": "bucket", "value": "x"}


def test_an_alias_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"read as 'commit\.max-retries'") as caught:
        check_table_options({"commit-max-retries": "3"})
    assert len(caught) == 1


def test_paimon_options_of_other_engines_are_kept_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_table_options(
            {
                "merge-engine": "deduplicate",
                "fields.a.stats-mode": "none",
                "scan.mode": "latest",
                "bucket": "1",
            }
        )


NEWER = [(key, newer.treatment) for newer in NEWER_OPTIONS for key in newer.keys]


def test_each_newer_option_stands_in_the_table_once_with_its_reason() -> None:
    keys = [key for key, _ in NEWER]
    assert len(keys) == len(set(keys))
    assert all(newer.keys == tuple(sorted(newer.keys)) for newer in NEWER_OPTIONS)
    assert all(newer.why.endswith(".") for newer in NEWER_OPTIONS)


@pytest.mark.parametrize(("key", "treatment"), NEWER)
def test_a_newer_option_that_has_an_effect_is_declared_and_no_other(
    key: str, treatment: Treatment
) -> None:
    of_tables = {option.key for option in table_options()}
    of_a_column = key.startswith("fields.<column>.")
    assert (key in of_tables or of_a_column) == (treatment is not Treatment.UNUSED)
    assert is_known(key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if treatment is Treatment.UNUSED:
            check_table_options({key: "x"})


@pytest.mark.parametrize(
    "key",
    [
        "s3.secret-key",
        "s3.access-key",
        "FS.S3A.Session.Token",
        "fs.s3a.bucket.b.secret.key",
        "AWS_SECRET_ACCESS_KEY",
        "fs.azure.account.key.acc.dfs.core.windows.net",
        "adls.sas-token",
        "gs.service-account-key",
        "fs.oss.accessKeySecret",
        "fs.s3a.proxy.password",
    ],
)
def test_credentials_are_no_options_of_a_table(key: str) -> None:
    for check in (check_table_options, check_sink_options):
        with pytest.raises(InvalidOption, match="storage_options") as raised:
            check({key: "hunter2"})
        assert "hunter2" not in str(raised.value) + str(raised.value.context)


def test_what_only_looks_like_a_credential_is_a_tables_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_table_options(
            {"password": "x", "token": "x", "s3.endpoint": "x", "primary-key": "id"}
        )


# -- all of Paimon's options, through all doors -------------------------------------------------

OF_PAIMON = sorted(
    {
        key.lower()
        for keys in json.loads((ROOT / "tests/vectors/paimon_options.json").read_text()).values()
        for key in keys
    }
    | {key.lower() for newer in NEWER_OPTIONS for key in newer.keys}
)
"""The options of Paimon 1.4.2 and of its connectors for Flink and Spark, and the newer ones."""

DECLARED = {name for option in table_options() for name in (option.key, *option.aliases)}
WITH_PREFIX = ("fields.", "file-index.", "parquet.", "orc.", "commit.callback.", "tag.callback.")
"""Options that name a column, a class or what a library knows. Other checks judge these."""


def answer_of(door: Callable[[], None]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            door()
        except InvalidOption:
            return "refused"
    return "warned of" if caught else "in silence"


@pytest.mark.parametrize("key", OF_PAIMON)
def test_no_door_passes_over_an_option_of_paimon_in_silence(key: str) -> None:
    value = next((o.default for o in table_options() if o.key == key and o.default), "1")
    given = {key: value}
    is_declared = key in DECLARED
    assert is_known(key)
    if not key.startswith(WITH_PREFIX) and not is_declared:
        assert answer_of(lambda: writes(given)) != "in silence" or key == "write.merge-schema"
    for followed in (["scan.mode"], STREAM):
        answer = answer_of(lambda followed=followed: check_unfollowed_reads(given, followed))  # type: ignore[misc]
        reads = {option.key for option in FOLLOWED_BY_READS} | set(followed)
        aliases = {n for o in table_options() if o.key in reads for n in (o.key, *o.aliases)}
        if key in CHOOSING_ROWS and key not in followed:
            assert answer == "refused"
        elif key not in (reads | aliases) and not key.startswith(WITH_PREFIX):
            assert answer == "warned of"


def test_the_default_of_an_option_that_chooses_rows_is_no_error_for_a_read() -> None:
    for key, default in CHOOSING_ROWS.items():
        if default is not None:
            assert (
                answer_of(lambda key=key, text=default: check_unfollowed_reads({key: text}, []))  # type: ignore[misc]
                == "in silence"
            )


STREAM = ["scan.mode", "consumer-id", "streaming-read-overwrite", "read.changelog"]


def writes(options: dict[str, str]) -> None:
    check_sink_options(options)
    warn_of_unfollowed_writes(options)


def test_a_table_keeps_the_options_of_other_engines_in_silence_and_no_misspelt_one() -> None:
    for key in sorted({*CHOOSING_ROWS, *OF_OTHERS}):
        assert answer_of(lambda key=key: check_table_options({key: "1"})) == "in silence", key  # type: ignore[misc]
    for key in ("scan.mod", "sink.paralelism", "snapshot.time-retaned", "streaming-read-overwite"):
        assert answer_of(lambda key=key: check_table_options({key: "1"})) == "warned of", key  # type: ignore[misc]
