"""The login at a Hive Metastore with Kerberos, as far as it needs no realm: options, servers that are
none, and tickets that are missing. `tests/conformance/test_metastore_with_kerberos.py` has a realm.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from paimon_stream import catalog, errors
from paimon_stream.catalogs import kerberos
from paimon_stream.catalogs.hive import open_table
from paimon_stream.catalogs.hive_client import client_of
from paimon_stream.catalogs.hive_login import Login, _received, login_of
from paimon_stream.storage.memory import MemoryStorage

SERVER = "hive/_HOST@EXAMPLE.COM"
ENABLED = {"hive.metastore.sasl.enabled": "true", "hive.metastore.kerberos.principal": SERVER}
KEYTAB = {
    "security.kerberos.login.principal": "alice@EXAMPLE.COM",
    "security.kerberos.login.keytab": "/etc/alice.keytab",
}
NO_REALM = """
[libdefaults]
default_realm = EXAMPLE.COM
dns_lookup_kdc = false
[realms]
EXAMPLE.COM = {
  kdc = 127.0.0.1:1
}
"""


class Said:
    """A connection on which a server has said this, and which takes everything."""

    def __init__(self, said: bytes = b"") -> None:
        self.said = said

    def write(self, data: bytes) -> None:
        pass

    def flush(self) -> None:
        pass

    def readAll(self, size: int) -> bytes:
        taken, self.said = self.said[:size], self.said[size:]
        if len(taken) < size:
            raise EOFError
        return taken


@pytest.fixture
def no_realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No ticket, and a realm that nobody serves."""
    try:
        kerberos._library()
    except errors.UnsupportedFeature as why:
        pytest.skip(str(why))
    (tmp_path / "krb5.conf").write_text(NO_REALM)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return tmp_path


def log_in(login: Login) -> None:
    with login.logged_in(Said(), "host.example", "thrift://host.example"):
        pytest.fail("there is no server")


def test_options_describe_a_login() -> None:
    assert login_of({}) is None
    assert login_of({"hive.metastore.sasl.enabled": "false"}) is None
    assert login_of(ENABLED) == Login(SERVER)
    principal, keytab = KEYTAB.values()
    assert login_of({**ENABLED, **KEYTAB}) == Login(SERVER, principal, keytab)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hive.metastore.sasl.enabled": "true"}, "Set it to the principal of the Hive Metastore"),
        ({**ENABLED, "security.kerberos.login.principal": "alice"}, "only one is set"),
        ({**ENABLED, "security.kerberos.login.keytab": "/alice"}, "only one is set"),
        ({**ENABLED, "hive.metastore.sasl.enabled": "kerberos"}, "hive.metastore.sasl.enabled"),
    ],
)
def test_options_that_describe_no_login_are_refused(options: dict[str, str], said: str) -> None:
    pytest.importorskip("thrift")
    with pytest.raises(errors.InvalidOption, match=said):
        catalog({"metastore": "hive", "uri": "thrift://host", **options}).list_databases()


def test_the_options_of_a_login_reach_the_storage_of_a_table_and_cause_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"metastore": "hive", "uri": "thrift://host", **ENABLED, **KEYTAB}
    catalog(options)
    storage = open_table(
        "/wh/t", {**options, "catalog.table": "db.t"}, lambda *_: MemoryStorage("/wh/t")
    )
    assert client_of(storage.options).login == login_of(options)  # type: ignore[attr-defined]
    assert not caplog.records


def test_without_a_ticket_the_error_says_how_to_get_one(no_realm: Path) -> None:
    with pytest.raises(errors.PermissionDenied, match=r"hive/host\.example@EXAMPLE\.COM.*kinit"):
        log_in(Login(SERVER))


def test_a_keytab_that_is_not_there_is_named(no_realm: Path) -> None:
    with pytest.raises(errors.InvalidOption, match=r"login\.keytab' is '/none'"):
        log_in(Login(SERVER, "alice@EXAMPLE.COM", "/none"))


def test_a_keytab_without_the_user_is_refused(no_realm: Path) -> None:
    with pytest.raises(errors.PermissionDenied, match=r"bob@EXAMPLE\.COM with .*keys failed"):
        log_in(Login(SERVER, "bob@EXAMPLE.COM", str(keys_of_alice(no_realm))))


def test_a_realm_that_cannot_be_reached_is_no_lack_of_rights(no_realm: Path) -> None:
    with pytest.raises(errors.Unavailable, match=r"\(KDC\) can be reached"):
        log_in(Login(SERVER, "alice@EXAMPLE.COM", str(keys_of_alice(no_realm))))


def keys_of_alice(folder: Path) -> Path:
    """A keytab with a key of alice@EXAMPLE.COM."""
    texts = [struct.pack(">H", len(text)) + text for text in (b"EXAMPLE.COM", b"alice")]
    times = struct.pack(">IIB", 1, 0, 1)  # the kind of the name, the time, the version of the key
    entry = struct.pack(">H", 1) + b"".join(texts) + times + struct.pack(">HH", 18, 32) + bytes(32)
    path = folder / "keys"
    path.write_bytes(b"\x05\x02" + struct.pack(">i", len(entry)) + entry)
    return path


def test_what_answers_a_login_with_no_sasl_is_found() -> None:
    with pytest.raises(ValueError, match="no SASL"):
        _received(Said(b"HTTP/1.1 400 Bad Request"), 2)
    with pytest.raises(kerberos.KerberosFailure, match="refuses it: GSS initiate failed"):
        _received(Said(b"\x03\x00\x00\x00\x13GSS initiate failed"), 2)
    assert _received(Said(b"\x02\x00\x00\x00\x02ab"), 2) == b"ab"


def test_without_the_library_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerberos, "_LIBRARY", "libnone.so.0")
    kerberos._library.cache_clear()
    with pytest.raises(errors.UnsupportedFeature, match=r"libgssapi-krb5-2"):
        log_in(Login(SERVER))
    kerberos._library.cache_clear()
