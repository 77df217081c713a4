"""An HDFS that wants Kerberos: tables are written with a ticket, with a client keytab of MIT Kerberos, and with
the keytab that the options name, or with a delegation token, and nobody is let in without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kits.hdfs import MiniHdfs
from tests.kits.kerberos import NAME, Realm
from tests.kits.stores import started

pytestmark = [pytest.mark.hdfs, pytest.mark.full]

SERVER = f"hdfs/localhost@{NAME}"
USER = f"alice@{NAME}"
TOKENS = "HADOOP_TOKEN_FILE_LOCATION"
ROWS = """
import sys
import pyarrow as pa
from paimon_stream import PaimonTable
location, *options = sys.argv[1:]
options = dict(option.split("=", 1) for option in options)
table = PaimonTable.create(location, [("id", "BIGINT")], if_not_exists=True, storage_options=options)
table.append(pa.table({"id": pa.array([1], pa.int64())}))
print(table.to_arrow().num_rows)
"""


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with started(
        lambda _: Realm(["alice", "hdfs/localhost", "HTTP/localhost"]), "hdfs_native"
    ) as realm:
        yield realm


def secured(realm: Realm, protection: str) -> MiniHdfs:
    """An HDFS whose nodes log in, and whose content travels as the protection says."""
    keys = str(realm.keytab)
    web = "dfs.web.authentication.kerberos"
    set_up = {
        "hadoop.security.authentication": "kerberos",
        "hadoop.rpc.protection": protection,
        "dfs.data.transfer.protection": protection,
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        f"{web}.principal": f"HTTP/localhost@{NAME}",
        f"{web}.keytab": keys,
    }
    for node in ("namenode", "datanode"):
        set_up[f"dfs.{node}.kerberos.principal"] = SERVER
        set_up[f"dfs.{node}.keytab.file"] = keys
    hdfs = MiniHdfs(set_up, java_options=(f"-Djava.security.krb5.conf={realm.conf}",))
    hdfs.configure({name: set_up[name] for name in list(set_up)[:3]})
    hdfs.tell("mkdirs /wh")
    hdfs.tell("chmod /wh 777")
    return hdfs


def written(
    hdfs: MiniHdfs, realm: Realm, environment: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """A process of its own appends a row, and prints how many rows there are. The principal of the
    nodes is that of `localhost`; a token is for the address that the name node has.
    """
    port = hdfs.name_nodes[0].split(":")[1]
    host = "127.0.0.1" if TOKENS in environment else "localhost"
    location = f"hdfs://{host}:{port}/wh/t"
    impatient = "paimon-stream.store.max-outage=0 s"
    return subprocess.run(
        [sys.executable, "-c", ROWS, location, impatient, *options],
        env={
            **os.environ,
            "HADOOP_CONF_DIR": str(hdfs.conf),
            "KRB5_CONFIG": str(realm.conf),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_each_way_to_log_in_writes_and_none_does_not(realm: Realm, tmp_path: Path) -> None:
    """A client keytab fills the cache of tickets, which then suffices."""
    client_keytab = {"KRB5_CLIENT_KTNAME": f"FILE:{realm.keytab}"}
    cache = {"KRB5CCNAME": f"FILE:{tmp_path / 'cache'}"}
    keytab_options = (
        f"security.kerberos.login.principal={USER}",
        f"security.kerberos.login.keytab={realm.keytab}",
    )
    with secured(realm, "authentication") as hdfs:
        nobody = written(hdfs, realm, cache)
        assert nobody.returncode != 0
        assert "PermissionDenied" in nobody.stderr and "kinit" in nobody.stderr
        assert written(hdfs, realm, {**cache, **client_keytab}).stdout == "1\n"
        assert written(hdfs, realm, cache).stdout == "2\n"
        other = {"KRB5CCNAME": f"FILE:{tmp_path / 'other'}"}
        assert written(hdfs, realm, other, *keytab_options).stdout == "3\n"
    with secured(realm, "privacy") as hdfs:
        assert written(hdfs, realm, cache).stdout == "1\n"


def test_a_delegation_token_writes_without_a_ticket_until_it_is_cancelled(
    realm: Realm, tmp_path: Path
) -> None:
    """As in a container of YARN: there is a file of tokens, and neither a ticket nor a keytab."""
    no_ticket = {"KRB5CCNAME": f"FILE:{tmp_path / 'no-cache'}"}
    tokens = tmp_path / "tokens"
    with secured(realm, "authentication") as hdfs:
        hdfs.tell(f"token {tokens} renewer")
        with_token = {**no_ticket, TOKENS: str(tokens)}
        for rows in ("1\n", "2\n"):
            appended = written(hdfs, realm, with_token)
            assert appended.stdout == rows, appended.stderr
        assert "PermissionDenied" in written(hdfs, realm, no_ticket).stderr
        hdfs.tell(f"cancel-token {tokens}")
        cancelled = written(hdfs, realm, with_token)
        assert cancelled.returncode != 0
        assert "PermissionDenied" in cancelled.stderr, cancelled.stderr
