"""Catalogs that a file names, and what the command line makes and changes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result

from paimon_stream import PaimonTable, catalog
from paimon_stream.cli.app import cli
from paimon_stream.cli.command import Session
from paimon_stream.cli.compact import CompactionAdvice

SECRET = "hunter2"


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A warehouse with a database, which the file of catalogs calls `dev`. Nothing else is in the
    environment.
    """
    for name in ("PAIMON_STREAM_WAREHOUSE", "PAIMON_STREAM_CATALOG"):
        monkeypatch.delenv(name, raising=False)
    folder = str(tmp_path / "w")
    catalog({"warehouse": folder}).create_database("shop")
    configured(
        tmp_path,
        monkeypatch,
        f'[catalog.dev]\nwarehouse = "{folder}"\n"table-default.file.format" = "orc"\n'
        f'[catalog.bare]\nwarehouse = "{folder}"\ntable-default.file.format = "orc"\ntable-default.bucket = 3\n',
    )
    return folder


def configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int = 0o600
) -> Path:
    file = tmp_path / "catalogs.toml"
    file.write_text(text)
    file.chmod(mode)
    monkeypatch.setenv("PAIMON_STREAM_CONFIG", str(file))
    return file


def run(*words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, list(words), env=env)


def made(warehouse: str, *words: str) -> PaimonTable:
    done = run("create", "--catalog", "dev", *words, "shop.orders")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return PaimonTable.load(f"{warehouse}/shop.db/orders")


def lines_of(done: Result, code: int) -> list[str]:
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    return done.stderr.splitlines()


# -- create
# -----------------------------------------------------------------------------------------------


def test_a_table_is_created_as_it_is_described(warehouse: str) -> None:
    words = (
        "--column",
        "id BIGINT NOT NULL",
        "--column",
        "`the day` DATE",
        "--column",
        "price DECIMAL(10, 2)",
    )
    words += (
        "--primary-key",
        "id, the day",
        "--partition-key",
        "the day",
        "--option",
        "bucket=2",
        "--comment",
        "c",
    )
    table = made(warehouse, *words)
    assert [str(one.type) for one in table.schema.fields] == [
        "BIGINT NOT NULL",
        "DATE NOT NULL",
        "DECIMAL(10, 2)",
    ]
    assert (table.primary_keys, table.partition_keys) == (("id", "the day"), ("the day",))
    assert dict(table.schema.options) == {"bucket": "2", "file.format": "orc"}
    assert table.schema.comment == "c"


def test_a_table_is_created_at_a_location_too(tmp_path: Path) -> None:
    location = str(tmp_path / "shop.db" / "orders")
    assert json.loads(run("create", "--json", "--column", "id INT", location).stdout) == {
        "table": location
    }
    assert PaimonTable.load(location).schema.field_names == ("id",)


def test_a_table_that_exists_is_left_or_refused_in_a_line(warehouse: str) -> None:
    made(warehouse, "--column", "id INT")
    (line,) = lines_of(run("create", "--catalog", "dev", "--column", "x INT", "shop.orders"), 4)
    assert "pass --if-not-exists" in line
    assert made(warehouse, "--column", "x INT", "--if-not-exists").schema.field_names == ("id",)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--column", "id"], 2, "a name and a type"),
        (["--column", "id NUMBER"], 1, "Not a data type"),
        (["--column", "id INT", "--primary-key", "key"], 1, "'key'"),
        (["--column", "id INT", "--option", "bucket"], 2, "KEY=VALUE"),
        (["--column", "id INT", "--option", "s3.secret-key=hunter2"], 1, "credential"),
        ([], 2, "--column"),
    ],
)
def test_a_mistake_in_a_description_creates_nothing(
    warehouse: str, words: list[str], code: int, text: str
) -> None:
    done = run("create", "--catalog", "dev", *words, "shop.orders")
    assert done.exit_code == code and text in done.stderr and SECRET not in done.output
    assert catalog({"warehouse": warehouse}).list_tables("shop") == []


def test_a_database_that_is_missing_ends_with_its_own_code(warehouse: str) -> None:
    (line,) = lines_of(run("create", "--catalog", "dev", "--column", "id INT", "shpo.orders"), 3)
    assert "'shpo'" in line


def test_what_the_package_warns_of_is_a_line(warehouse: str) -> None:
    done = run("create", "--catalog", "dev", "--column", "id INT", "--option", "x=1", "shop.orders")
    assert done.exit_code == 0
    assert (
        done.stderr
        == "paimon-stream: warning: Unknown option 'x'. It is kept, and has no effect here.\n"
    )


# -- alter
# ------------------------------------------------------------------------------------------------

CHANGES = (
    "--add",
    "note STRING",
    "--drop",
    "b",
    "--rename",
    "c=b",
    "--type",
    "b BIGINT",
    "--set",
    "file.format=orc",
)
CHANGES += ("--column-comment", "note=what = was said", "--unset", "bucket")


def test_changes_are_shown_first_and_are_one_schema(warehouse: str) -> None:
    made(
        warehouse,
        "--column",
        "a INT",
        "--column",
        "b INT",
        "--column",
        "c INT",
        "--option",
        "bucket=-1",
    )
    shown = run("alter", "--catalog", "dev", *CHANGES, "--json", "shop.orders")
    assert (shown.exit_code, json.loads(shown.stdout)["dry_run"]) == (5, True)
    assert PaimonTable.load(f"{warehouse}/shop.db/orders").schema.id == 0
    done = run("alter", "--catalog", "dev", *CHANGES, "--yes", "--json", "shop.orders")
    assert done.exit_code == 0, done.output
    schema = PaimonTable.load(f"{warehouse}/shop.db/orders").schema
    assert [f"{one.name} {one.type}" for one in schema.fields] == [
        "a INT",
        "b BIGINT",
        "note STRING",
    ]
    assert (schema.id, schema.field("note").description) == (1, "what = was said")
    assert dict(schema.options) == {"file.format": "orc"}
    first, second = json.loads(shown.stdout), json.loads(done.stdout)
    assert first["columns"] == second["columns"] and (first["id"], second["id"]) == (1, 1)


def test_what_a_table_is_like_already_is_no_change(warehouse: str) -> None:
    made(warehouse, "--column", "a INT", "--option", "bucket=-1")
    assert run("alter", "--catalog", "dev", "--set", "bucket=-1", "shop.orders").exit_code == 0
    assert PaimonTable.load(f"{warehouse}/shop.db/orders").schema.id == 0


def test_a_branch_is_altered_and_main_is_not(warehouse: str) -> None:
    made(warehouse, "--column", "a INT").create_branch("test")
    done = run(
        "alter", "--catalog", "dev", "--branch", "test", "--add", "b INT", "--yes", "shop.orders"
    )
    assert done.exit_code == 0, done.output
    location = f"{warehouse}/shop.db/orders"
    assert PaimonTable.load(location).schema.id == 0
    assert run("alter", f"{location}$branch_test", "--add", "c INT", "--yes").exit_code == 0
    assert PaimonTable.load(location, branch="test").schema.field_names == ("a", "b", "c")


@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_change_that_is_refused_names_the_table_and_changes_nothing(
    warehouse: str, yes: list[str]
) -> None:
    made(warehouse, "--column", "a BIGINT")
    for change in (
        ("--type", "a INT"),
        ("--drop", "x"),
        ("--add", "x NUMBER"),
        ("--set", f"s3.secret-key={SECRET}"),
    ):
        done = run("alter", "--catalog", "dev", "--add", "b INT", *change, *yes, "shop.orders")
        (line,) = lines_of(done, 1)
        assert f"{warehouse}/shop.db/orders" in line and SECRET not in line
    assert run("alter", "--catalog", "dev", "--add", "b", "shop.orders").exit_code == 2
    assert PaimonTable.load(f"{warehouse}/shop.db/orders").schema.id == 0


# -- the file of catalogs
# ---------------------------------------------------------------------------------


def test_keys_with_and_without_quotes_are_the_same_options(warehouse: str) -> None:
    done = run("create", "--catalog", "bare", "--column", "id INT", "--primary-key", "id", "shop.t")
    assert done.exit_code == 0, done.output
    options = PaimonTable.load(f"{warehouse}/shop.db/t").schema.options
    assert dict(options) == {"file.format": "orc", "bucket": "3"}


def test_every_way_to_a_catalog_finds_the_same_table(warehouse: str, tmp_path: Path) -> None:
    made(warehouse, "--column", "id INT").append(pa.table({"id": pa.array([7], pa.int32())}))
    rows = [{"id": 7}]
    wrong = {"PAIMON_STREAM_WAREHOUSE": str(tmp_path / "none"), "PAIMON_STREAM_CATALOG": "none"}
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--catalog", "dev"], {}),
        (["--catalog", "dev"], wrong),
        (["--warehouse", warehouse], wrong),
        ([], {"PAIMON_STREAM_CATALOG": "dev"}),
        ([], {**wrong, "PAIMON_STREAM_CATALOG": "dev"}),
        ([], {"PAIMON_STREAM_WAREHOUSE": warehouse}),
    ]
    for words, env in ways:
        found = run("head", "--json", *words, "shop.orders", env=env)
        assert json.loads(found.stdout)["rows"] == rows, (words, env, found.output)
    assert (
        json.loads(run("head", "--json", f"{warehouse}/shop.db/orders", env=wrong).stdout)["rows"]
        == rows
    )
    assert (
        run(
            "head", "--catalog", "dev", "--warehouse", str(tmp_path / "none"), "shop.orders"
        ).exit_code
        == 3
    )


@pytest.mark.parametrize("words", [["--warehouse", "x"], ["--catalog", "dev"]])
def test_a_location_beside_a_catalog_is_one_clear_error(warehouse: str, words: list[str]) -> None:
    made(warehouse, "--column", "id INT")
    (*_, line) = lines_of(run("schema", *words, f"{warehouse}/shop.db/orders"), 2)
    assert "--warehouse and --catalog" in line


@pytest.mark.parametrize(
    "option", ["s3.acces-key", "paimon-stream.unsafe-singel-writer", "nonsense"]
)
@pytest.mark.parametrize("of_store", [False, True])
def test_a_storage_option_that_nobody_knows_is_refused_beside_a_name_too(
    warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, of_store: bool
) -> None:
    if of_store:
        pytest.importorskip("obstore")
        text = '[catalog.dev]\nwarehouse = "s3://bucket/w"\ns3.endpoint = "http://127.0.0.1:1"\n'
        configured(tmp_path, monkeypatch, text)
    (line,) = lines_of(
        run("schema", "--catalog", "dev", "--storage-option", f"{option}={SECRET}", "shop.orders"),
        1,
    )
    assert option in line and SECRET not in line


def test_options_of_the_catalog_itself_may_be_typed(warehouse: str) -> None:
    made(warehouse, "--column", "id INT")
    typed = (
        "metastore=filesystem",
        "table-default.bucket=3",
        "paimon-stream.unsafe-single-writer=true",
    )
    given = [word for one in typed for word in ("--storage-option", one)]
    assert run("schema", "--catalog", "dev", *given, "shop.orders").exit_code == 0


def test_databases_and_tables_of_a_catalog_are_listed(warehouse: str) -> None:
    made(warehouse, "--column", "id INT")
    catalog({"warehouse": warehouse}).create_database("a")
    assert run("databases", "--catalog", "dev").stdout.split() == ["database", "a", "shop"]
    assert json.loads(run("databases", warehouse, "--json").stdout) == {
        "warehouse": warehouse,
        "databases": ["a", "shop"],
    }
    tables = json.loads(run("ls", "--catalog", "dev", "--json").stdout)["tables"]
    assert [one["table"] for one in tables] == [None, "orders"]
    assert run("databases", "--json", env={"PAIMON_STREAM_WAREHOUSE": warehouse}).exit_code == 0
    (*_, line) = lines_of(run("databases"), 2)
    assert "--catalog" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no section [catalog.dev]"),
        ("catalog = 1", "no section [catalog.dev]"),
        ("[catalog]\ndev = 'hunter2'", "no section [catalog.dev]"),
        ("[catalog.other]\nwarehouse = 'x'", "no section [catalog.dev]"),
        ("[catalog.dev]\npassword = hunter2", "line 2"),
        (None, "No such file"),
    ],
)
def test_a_file_without_the_catalog_is_a_line_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, said: str
) -> None:
    file = configured(tmp_path, monkeypatch, text or "")
    if text is None:
        file.unlink()
    (*_, line) = lines_of(run("snapshots", "--catalog", "dev", "shop.orders"), 2)
    assert said in line and str(file) in line and SECRET not in line


@pytest.mark.parametrize(
    ("key", "mode", "warned"), [("s3.secret-key", 0o644, 1), ("s3.secret-key", 0o600, 0)]
)
def test_secrets_that_others_can_read_are_a_warning_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, mode: int, warned: int
) -> None:
    text = f'[catalog.dev]\nwarehouse = "s3://b/w"\ns3.endpoint = "http://127.0.0.1:1"\n"{key}" = "{SECRET}"\n'
    configured(tmp_path, monkeypatch, f"{text}lock.type = 'x'\n", mode)
    done = run(
        "ls",
        "--catalog",
        "dev",
        "--debug",
        "--json",
        "--storage-option",
        "s3.connection.timeout=nonsense",
    )
    assert done.exit_code != 0
    assert done.stderr.count("chmod 600") == warned
    assert SECRET not in done.output


@pytest.mark.parametrize("key", ["token", "jdbc.password", "header.Authorization", "client-secret"])
def test_secrets_of_other_catalogs_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    configured(
        tmp_path,
        monkeypatch,
        f'[catalog.dev]\nwarehouse = "{tmp_path}"\n{key} = "{SECRET}"\n',
        0o640,
    )
    assert run("databases", "--catalog", "dev").stderr.count("chmod 600") == 1


def test_the_file_is_read_only_where_a_name_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, monkeypatch, "broken")
    PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    assert run("stats", str(tmp_path / "t"), env={"PAIMON_STREAM_CATALOG": "dev"}).exit_code == 0


def test_the_advice_to_compact_names_the_table_as_it_was_given(warehouse: str) -> None:
    table = made(warehouse, "--column", "id INT", "--primary-key", "id", "--option", "bucket=1")
    for _ in range(6):
        table.append(pa.table({"id": pa.array([7], pa.int32())}))
    advice = run("stats", "--catalog", "dev", "shop.orders").stdout
    assert "paimon-stream compact --yes shop.orders Give it the same catalog" in advice


@pytest.mark.parametrize("kind", ["filesystem", "FileSystem"])
def test_the_advice_for_a_table_of_a_filesystem_catalog_names_its_folder(
    warehouse: str, kind: str
) -> None:
    made(warehouse, "--column", "id INT")
    session = Session(
        location="shop.orders", catalog_options={"metastore": kind, "warehouse": warehouse}
    )
    assert f"{warehouse}/shop.db/orders" in CompactionAdvice(session).command


@pytest.mark.parametrize("kind", ["rest", "REST"])
def test_a_rest_catalog_may_have_options_of_its_server(kind: str) -> None:
    of_catalog = {"metastore": kind, "uri": "http://127.0.0.1:1", "warehouse": "w", "token": "x"}
    session = Session(
        location="db.t", catalog_options=of_catalog, storage_options={"header.tenant": "a"}
    )
    assert session.catalog.storage_options["header.tenant"] == "a"
