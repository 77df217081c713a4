"""Where the settings of HDFS come from."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from paimon_stream.errors import InvalidOption
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.hdfs import HdfsStorage
from paimon_stream.storage.hdfs_sources import (
    HdfsSettings,
    default_file_system,
    hdfs_options_for,
    hdfs_settings_of,
)
from paimon_stream.storage.location import hdfs_location
from paimon_stream.storage.uri import open_beside, place_of

HA = {
    "dfs.ha.namenodes.ns1": "a,b",
    "dfs.namenode.rpc-address.ns1.a": "one:8020",
    "dfs.namenode.rpc-address.ns1.b": "two:8020",
}


def settings(
    location: str, options: dict[str, str] | None = None, **sources: object
) -> HdfsSettings:
    return hdfs_settings_of(
        hdfs_location(location),
        options or {},
        **{"environment": {}, **sources},  # type: ignore[arg-type]
    )


def conf(folder: Path, **entries: str) -> dict[str, str]:
    lines = [
        f"<property><name>{name}</name><value> {value} </value></property>"
        for name, value in entries.items()
    ]
    text = f"<?xml version='1.0'?>\n<configuration>{''.join(lines)}</configuration>"
    (folder / "hdfs-site.xml").write_text(text)
    return {"HADOOP_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    ("location", "url", "path"),
    [
        ("hdfs://ns1/wh/db.db/t", "hdfs://ns1", "/wh/db.db/t"),
        ("HDFS://host:8020//wh//t/", "hdfs://host:8020", "/wh/t"),
        ("hdfs://ns1/a b%20/p=é", "hdfs://ns1", "/a b%20/p=é"),
    ],
)
def test_a_location_names_a_file_system_and_a_path(location: str, url: str, path: str) -> None:
    opened = settings(location)
    assert (opened.url, opened.prefix) == (url, path)
    assert opened.location == location.rstrip("/")


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("hdfs:/wh/t", "two slashes"),
        ("hdfs://ns1", "a table needs a folder"),
        ("hdfs://ns1/", "a table needs a folder"),
        ("hdfs://user@ns1/t", "HADOOP_USER_NAME"),
        ("hdfs://ns1/t?x=1", "no query"),
        ("hdfs://ns1/a/../t", "in full"),
        ("hdfs://ns1/a/b:c", "no colon"),
        ("hdfs://ns1:x/t", "names no name service"),
        ("hdfs://ns1:99999/t", "A port is a number from 1 to 65535"),
        ("hdfs://ns1:0/t", "A port is a number from 1 to 65535"),
    ],
)
def test_a_location_that_cannot_be_one_is_refused(location: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        settings(location)


def test_options_come_before_spark_and_spark_before_files(tmp_path: Path) -> None:
    name = "dfs.client.use.datanode.hostname"
    files = conf(tmp_path, **{name: "files", **HA, "dfs.replication": "3"})
    spark = {name: "spark", "dfs.namenode.rpc-address.ns1.b": "three:8020", "fs.s3a.secret": "x"}
    found = settings("hdfs://ns1/t", {name: "call"}, spark=lambda: spark, environment=files)
    assert found.config == {**HA, "dfs.namenode.rpc-address.ns1.b": "three:8020", name: "call"}
    without = {"paimon-stream.store.from-spark": "false"}
    found = settings("hdfs://ns1/t", without, spark=lambda: spark, environment=files)
    assert found.config == {**HA, name: "files"}


def test_variables_of_files_are_replaced_as_hadoop_does(tmp_path: Path) -> None:
    files = conf(
        tmp_path,
        **{"my.port": "8020", "dfs.namenode.rpc-address.ns1.a": "one:${my.port}${not.there}"},
    )
    found = settings("hdfs://ns1/t", environment=files)
    assert found.config == {"dfs.namenode.rpc-address.ns1.a": "one:8020${not.there}"}


def test_the_folder_of_hadoop_home_counts_without_hadoop_conf_dir(tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "hadoop"
    folder.mkdir(parents=True)
    conf(folder, **HA)
    assert settings("hdfs://ns1/t", environment={"HADOOP_HOME": str(tmp_path)}).config == HA


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(InvalidOption, match=r"core-site\.xml of Hadoop's configuration"):
        settings("hdfs://ns1/t", environment={"HADOOP_CONF_DIR": str(tmp_path)})


def test_the_default_file_system_is_that_of_the_configuration() -> None:
    default = {"fs.defaultFS": "hdfs://ns1/"}
    assert settings("hdfs:///wh/t", default).url == "hdfs://ns1"
    with pytest.raises(InvalidOption, match=r"fs\.defaultFS"):
        settings("hdfs:///wh/t", {"fs.defaultFS": "file:///"})


def test_a_path_without_a_scheme_is_where_spark_finds_it(tmp_path: Path) -> None:
    """Spark does not see storage options. Without a session its files of Hadoop are asked."""
    entry = "<property><name>fs.defaultFS</name><value>hdfs://of-files</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{entry}</configuration>")
    files = {"HADOOP_CONF_DIR": str(tmp_path)}
    options = {"hadoop.fs.defaultFS": "hdfs://of-options"}

    def default(options: dict[str, str], spark: dict[str, str] | None = None) -> str:
        asked = None if spark is None else lambda: spark
        return default_file_system("/ck", options, spark=asked, environment=files)

    assert default({}) == "hdfs://of-files"
    assert default(options) == "hdfs://of-options"
    assert default(options, {"fs.defaultFS": "hdfs://of-spark"}) == "hdfs://of-spark"
    assert default(options, {"fs.s3a.endpoint": "x"}) == ""
    assert default_file_system("/ck", {}, environment={}) == ""


@pytest.mark.parametrize(
    ("path", "default", "root"),
    [
        ("/ck/q/", "file:///", "/ck/q"),
        ("file:///ck/q", "hdfs://127.0.0.1:9", "/ck/q"),
        ("/ck/q/", "hdfs://127.0.0.1:9/", "hdfs://127.0.0.1:9/ck/q"),
        ("/ck/q", "hdfs://127.0.0.1:9/user/me", "hdfs://127.0.0.1:9/ck/q"),
        ("ck/q", "hdfs://127.0.0.1:9", "ck/q"),
        ("/ck/q", "wasb://box@account", "wasb://box@account/ck/q"),
    ],
)
def test_a_checkpoint_has_the_name_that_spark_gives_it(path: str, default: str, root: str) -> None:
    checkpoint = open_checkpoint(path, spark=lambda: {"fs.defaultFS": default})
    assert checkpoint.root == root
    assert (checkpoint.storage is None) == (root != "/ck/q")


def test_a_path_of_a_mount_table_is_where_its_nearest_mount_leads() -> None:
    table = {
        "fs.viewfs.mounttable.c.link./wh": "hdfs://ns1/data",
        "fs.viewfs.mounttable.c.link./wh/new.db": "hdfs://ns2/new",
    }
    for location, url, path in (
        ("viewfs://c/wh/db.db/t", "hdfs://ns1", "/data/db.db/t"),
        ("viewfs://c/wh/new.db/t", "hdfs://ns2", "/new/t"),
    ):
        opened = settings(location, table)
        assert (opened.url, opened.prefix, opened.location) == (url, path, location)
    with pytest.raises(InvalidOption, match=r"fs\.viewfs\.mounttable\.c\.link\.<path>"):
        settings("viewfs://c/other/t", table)
    fallback = {**table, "fs.viewfs.mounttable.c.linkFallback": "hdfs://ns3/rest"}
    assert settings("viewfs://c/other/t", fallback).prefix == "/rest/other/t"
    with pytest.raises(InvalidOption, match="not in HDFS"):
        settings("viewfs://c/x/t", {"fs.viewfs.mounttable.c.link./x": "s3a://bucket/x"})


def test_javas_names_are_known_and_unknown_ones_refused() -> None:
    options = {
        "hadoop.dfs.client.use.datanode.hostname": "true",
        "security.kerberos.login.principal": "me@REALM",
        "security.kerberos.login.keytab": "/k",
        "paimon-stream.store.timeout": "2 s",
    }
    opened = settings("hdfs://ns1/t", options)
    assert opened.config == {"dfs.client.use.datanode.hostname": "true"}
    assert opened.login == {"kerberos_principal": "me@REALM", "kerberos_keytab": "/k"}
    assert opened.timeout_millis == 2000
    assert hdfs_options_for({**options, "s3.secret-key": "x", "bucket": "1"}) == options
    for name in ("dfs.replication", "s3.region", "paimon-stream.store.allow-http"):
        with pytest.raises(InvalidOption, match=name):
            settings("hdfs://ns1/t", {name: "1"})


def test_names_in_lower_case_are_hadoops_names() -> None:
    lowered = {"fs.defaultfs": "hdfs://ns1", "hadoop.dfs.ha.namenodes.ns1": "a"}
    assert settings("hdfs:///t", lowered).config == {
        "fs.defaultFS": "hdfs://ns1",
        "dfs.ha.namenodes.ns1": "a",
    }


def test_a_pickle_has_the_configuration_and_no_text_shows_it() -> None:
    storage = HdfsStorage(settings("hdfs://ns1/t", HA))
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.settings == storage.settings
    assert copy.settings.config == HA
    assert "8020" not in repr(storage) + repr(storage.settings)


def test_an_external_path_has_the_configuration_of_its_table() -> None:
    table = HdfsStorage(settings("hdfs://ns1/t", HA))
    beside = open_beside(table, "hdfs://ns1/elsewhere/x")
    assert isinstance(beside, HdfsStorage)
    assert beside.settings.config == HA
    assert beside.location == "hdfs://ns1/elsewhere/x"


def test_two_spellings_are_one_place() -> None:
    assert place_of("hdfs://ns1/wh//t/", {}) == place_of("HDFS://ns1/wh/t", {})
    assert place_of("hdfs://ns1/wh/t", {}) != place_of("hdfs://ns2/wh/t", {})
