"""How a store is opened: what obstore then sends, and what is refused."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import InvalidOption, MissingExtra, PermissionDenied, UnsupportedFeature
from paimon_stream.storage.location import store_location
from paimon_stream.storage.store_open import asked_region, open_store
from paimon_stream.storage.store_sources import settings_of

obstore = pytest.importorskip("obstore")

SECRET = "s3cr3t-never-shown"
KEYS = {"s3.access-key": "own-id", "s3.secret-key": SECRET}
KEY = "czNjcjN0LW5ldmVyLXNob3du"

ROLE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>role-id</AccessKeyId><SecretAccessKey>k</SecretAccessKey><SessionToken>role-token</SessionToken>
<Expiration>{until}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class _Server(ThreadingHTTPServer):
    """Says yes to everything, and notes what it is asked."""

    heads: list[dict[str, str]]
    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: _Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.heads.append({key.lower(): value for key, value in self.headers.items()})
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_response(403 if self.command == "HEAD" else 200)
        self.send_header("etag", '"x"')
        if "unnamed" not in self.path:
            self.send_header("x-amz-bucket-region", "eu-north-1")
        until = datetime.now(timezone.utc) + timedelta(hours=1)
        said = ROLE.format(until=until.isoformat()) if b"AssumeRole" in body else ""
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    do_GET = do_PUT = do_POST = do_HEAD = answer

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Answer) as running:
        running.heads, running.asked = [], []
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def _no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of the machine."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def put(
    server: _Server, options: dict[str, str], location: str = "s3://bucket/t"
) -> dict[str, str]:
    """The head of the request that a put sends."""
    settings = settings_of(store_location(location), options)
    try:
        store = open_store(settings, max_retries=0)
    except UnsupportedFeature as old:
        pytest.skip(str(old))
    obstore.put(store, f"{settings.prefix}/a b", b"x")
    return server.heads[-1]


def test_a_key_is_not_mixed_with_a_token_of_the_environment(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "stray")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    head = put(server, {**KEYS, "s3.endpoint": server.url})
    assert "Credential=own-id/" in head["authorization"]
    assert "x-amz-security-token" not in head
    assert server.asked == ["PUT /bucket/t/a%20b"]
    assert (
        put(server, {**KEYS, "s3.session-token": "t", "endpoint": server.url})[
            "x-amz-security-token"
        ]
        == "t"
    )


def test_azures_key_and_signature_come_before_the_environment(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "stray")
    given = {"azure.account-name": "acc", "azure.endpoint": f"{server.url}/acc"}
    head = put(server, {**given, "azure.account.key": KEY}, "az://c1/t")
    assert head["authorization"].startswith("SharedKey acc:")
    head = put(server, {**given, "azure.sas-token": "?sv=1&sig=a%3D"}, "az://c1/t")
    assert "authorization" not in head
    assert server.asked[-1] == "PUT /acc/c1/t/a%20b?sv=1&sig=a%3D"
    assert put(server, {**given, "token": "own"}, "az://c1/t")["authorization"] == "Bearer own"


def test_googles_token_is_sent(server: _Server) -> None:
    head = put(server, {"gcs.oauth2.token": "own", "gs.endpoint": server.url}, "gs://bucket/t")
    assert head["authorization"] == "Bearer own"


def test_encryption_and_proxies_reach_the_store(server: _Server) -> None:
    kms = {
        "s3.encryption.algorithm": "SSE-KMS",
        "s3.encryption.key": "arn",
        "request_payer": "true",
    }
    head = put(server, {**KEYS, **kms, "s3.endpoint": server.url})
    assert head["x-amz-server-side-encryption"] == "aws:kms"
    assert head["x-amz-server-side-encryption-aws-kms-key-id"] == "arn"
    assert head["x-amz-request-payer"] == "requester"
    far = {"s3.endpoint": "http://nowhere.invalid", "allow_http": "true", "proxy_url": server.url}
    assert put(server, {**KEYS, **far})["host"] == "nowhere.invalid"


def test_a_store_of_ones_own_ca_is_trusted(tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    (tmp_path / "ext").write_text("subjectAltName=DNS:localhost\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ours",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out csr -subj /CN=localhost",
        "x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile ext",
    ):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with _Server(("127.0.0.1", 0), _Answer) as safe:
        safe.heads, safe.asked = [], []
        safe.socket = context.wrap_socket(safe.socket, server_side=True)
        threading.Thread(target=safe.serve_forever, daemon=True).start()
        endpoint = {"s3.endpoint": f"https://localhost:{safe.server_port}"}
        with pytest.raises(obstore.exceptions.BaseError):
            put(safe, {**KEYS, **endpoint})
        assert put(safe, {**KEYS, **endpoint, "root_certificate": str(tmp_path / "ca.pem")})
        safe.shutdown()


def test_a_login_that_the_environment_hides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "client_id": "i",
        "client_secret": SECRET,
        "tenant_id": "t",
        "azure.account-name": "acc",
    }
    settings = settings_of(store_location("az://c1/t"), given)
    open_store(settings, max_retries=0)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with pytest.raises(
        InvalidOption, match="AZURE_STORAGE_ACCOUNT_KEY is set in the environment"
    ) as raised:
        open_store(settings, max_retries=0)
    assert SECRET not in str(raised.value)


def test_what_obstore_refuses_is_one_error_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="names no storage account"):
        open_store(settings_of(store_location("az://c1/t"), {}), max_retries=0)
    text = f'{{"private_key": "{SECRET}"}}'
    with pytest.raises(InvalidOption, match="obstore refuses") as raised:
        open_store(
            settings_of(store_location("gs://b1/t"), {"gs.service-account-key": text}),
            max_retries=0,
        )
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    made = settings_of(store_location("s3://bucket/t"), {**KEYS, "s3.region": "r"})
    made.config["later_option"] = "x"  # type: ignore[index]
    with pytest.raises(UnsupportedFeature, match="too old for later_option"):
        open_store(made, max_retries=0)
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(MissingExtra, match="'store'"):
        open_store(made, max_retries=0)


def test_the_regions_are_asked_of_aws(server: _Server) -> None:
    assert asked_region(f"{server.url}/bucket", None, None) == "eu-north-1"
    assert asked_region("http://nowhere.invalid/bucket", server.url, None) == "eu-north-1"
    with pytest.raises(LookupError):
        asked_region(f"{server.url}/unnamed", None, None)


def test_the_keys_of_a_profile_are_read_anew(server: _Server, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    profile = tmp_path / ".aws" / "credentials"
    profile.parent.mkdir()
    profile.write_text(f"[team]\naws_access_key_id = first\naws_secret_access_key = {SECRET}\n")
    given = {"aws.profile": "team", "s3.endpoint": server.url}
    store = open_store(settings_of(store_location("s3://bucket/t"), given), max_retries=0)
    obstore.put(store, "a", b"x")
    assert "Credential=first/" in server.heads[-1]["authorization"]
    profile.write_text(profile.read_text().replace("first", "second"))
    assert store.credential_provider()["access_key_id"] == "second"
    assert SECRET not in repr(store.credential_provider)
    until = store.credential_provider()["expires_at"] - datetime.now(timezone.utc)
    assert timedelta(minutes=5) < until < timedelta(minutes=10)


def test_the_default_profile_is_used_if_nothing_else_is_there(
    server: _Server, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    profile = tmp_path / ".aws" / "credentials"
    profile.parent.mkdir()
    profile.write_text(f"[default]\naws_access_key_id = mine\naws_secret_access_key = {SECRET}\n")
    assert "Credential=mine/" in put(server, {"s3.endpoint": server.url})["authorization"]


def test_a_missing_profile_is_one_error(server: _Server) -> None:
    pytest.importorskip("boto3")
    settings = settings_of(
        store_location("s3://bucket/t"), {"aws.profile": "nobody", "s3.endpoint": server.url}
    )
    with pytest.raises(PermissionDenied, match="profile 'nobody'") as raised:
        open_store(settings, max_retries=0)
    assert raised.value.__suppress_context__


def test_a_role_is_assumed_with_the_given_key(server: _Server) -> None:
    pytest.importorskip("boto3")
    role = {
        "s3.role-arn": "arn:aws:iam::1:role/writer",
        "fs.s3a.assumed.role.sts.endpoint": server.url,
    }
    head = put(server, {**KEYS, **role, "s3.endpoint": server.url})
    assert "Credential=role-id/" in head["authorization"]
    assert head["x-amz-security-token"] == "role-token"
