"""A Hive Metastore that asks for a login with Kerberos: tables are made with a ticket, with a client
keytab of MIT Kerberos and with the keytab that the options name, and nobody is let in without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, SchemaChange, catalog, errors
from tests.kits.hive import HiveMetastore
from tests.kits.kerberos import NAME, Realm
from tests.kits.stores import started

pytestmark = [pytest.mark.hive, pytest.mark.full]

SERVER = f"hive/localhost@{NAME}"
USER = f"alice@{NAME}"
COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
WIDE = [(f"column_{number}_{'x' * 100}", "BIGINT") for number in range(900)]


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with started(lambda _: Realm(["alice", "hive/localhost"]), "thrift") as realm:
        yield realm


@pytest.fixture(scope="module", params=["authentication", "integrity", "privacy"])
def metastore(realm: Realm, request: pytest.FixtureRequest) -> Iterator[HiveMetastore]:
    """A metastore that asks for a login, and protects what follows so."""
    settings = (
        "hadoop.security.authentication=kerberos",
        f"hadoop.rpc.protection={request.param}",
        "hive.metastore.sasl.enabled=true",
        f"hive.metastore.kerberos.principal={SERVER}",
        f"hive.metastore.kerberos.keytab.file={realm.keytab}",
    )
    with started(
        lambda _: HiveMetastore(
            *settings, java_options=[f"-Djava.security.krb5.conf={realm.conf}"]
        ),
        "thrift",
    ) as server:
        with server:
            yield server


@pytest.fixture(autouse=True)
def no_ticket(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)


def secured(metastore: HiveMetastore, **options: str) -> PaimonCatalog:
    """The catalog of the metastore, whose principal is that of `localhost`."""
    return catalog(
        {
            **metastore.options,
            "uri": f"thrift://localhost:{metastore.port}",
            "hive.metastore.sasl.enabled": "true",
            "hive.metastore.kerberos.principal": f"hive/_HOST@{NAME}",
            **options,
        }
    )


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def test_a_keytab_of_the_options_logs_in(metastore: HiveMetastore, realm: Realm) -> None:
    """The request for the wide table and its answer take several frames."""
    keytab = {
        "security.kerberos.login.principal": USER,
        "security.kerberos.login.keytab": str(realm.keytab),
    }
    ours = secured(metastore, **keytab, **{"lock.enabled": "true"})
    ours.create_database("shop")
    ours.create_table("shop.t", COLUMNS, options={"bucket": "-1"}).append(rows(1, 2))
    ours.create_table("shop.wide", WIDE)
    assert ours.list_tables("shop") == ["t", "wide"]
    assert ours.get_table("shop.t").to_arrow().num_rows == 2
    assert len(ours.get_table("shop.wide").schema.fields) == len(WIDE)
    ours.alter_table("shop.t", [SchemaChange.add_column("extra", "INT")])
    for _ in range(100):
        assert "shop" in ours.list_databases()
    ours.drop_database("shop", cascade=True)


def test_a_ticket_logs_in_and_without_one_the_error_says_how_to_get_it(
    metastore: HiveMetastore, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client keytab fills the cache of tickets, which then suffices."""
    ours = secured(metastore)
    with pytest.raises(errors.PermissionDenied, match=rf"{SERVER}, by the cache .*\(kinit\)"):
        ours.list_databases()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{realm.keytab}")
    assert "default" in ours.list_databases()
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    assert "default" in ours.list_databases()
