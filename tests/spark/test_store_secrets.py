"""Nothing that is written or printed has a secret of a store, in the clear or encoded."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow.parquet as pq
import pytest

from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import Rule

HERE = Path(__file__).parent
SECRETS = ("s3cr3t-never-shown", "AKIDTESTONLY", "t0ken-never-shown")


def encoded(secret: str) -> Iterator[bytes]:
    """The forms in which a secret may hide: also base64 at any place within a longer text."""
    yield secret.encode()
    yield quote(secret, safe="").encode()
    yield "".join(f"%{byte:02X}" for byte in secret.encode()).encode()
    yield secret.encode().hex().encode()
    for before in range(3):
        whole = base64.b64encode(b"x" * before + secret.encode() + b"x" * 3)
        yield whole[4 if before else 0 : -8]


FORMS = tuple(form for secret in SECRETS for form in encoded(secret))


def hidden_in(data: bytes) -> list[bytes]:
    return [form for form in FORMS if form in data]


@pytest.mark.parametrize("place", range(4))
def test_the_search_finds_what_is_encoded(place: int) -> None:
    for secret in SECRETS:
        assert hidden_in(base64.b64encode(b"y" * place + secret.encode() + b"z" * 5))
        assert hidden_in(f"https://u:{quote(secret)}@host".encode())


@pytest.mark.long
def test_no_secret_is_written_or_printed(tmp_path: Path, s3_server: StoreServer) -> None:
    echo = f"<Error><Code>AccessDenied</Code><AWSAccessKeyId>{' '.join(SECRETS)}</AWSAccessKeyId></Error>"
    with s3_server.proxied() as proxy:
        proxy.add(Rule("answer", times=None, status=403, body=echo))
        child = subprocess.run(
            [
                sys.executable,
                str(HERE / "store_secrets_child.py"),
                str(tmp_path),
                s3_server.server.url,
                proxy.url,
            ],
            cwd=HERE.parents[1],
            capture_output=True,
            timeout=900,
        )
    assert child.returncode == 0, child.stderr.decode()[-4000:]
    assert child.stdout.decode().endswith("done\n")
    assert not hidden_in(child.stdout + child.stderr)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"log", "said"} <= {path.name for path in files}
    assert any("events" in path.parts and path.stat().st_size > 10_000 for path in files)
    found = {str(path): hidden_in(path.read_bytes()) for path in files}
    assert not any(found.values()), found
    objects = dict(contents(s3_server))
    assert sum("/snapshot/snapshot-" in name for name in objects) >= 4
    found = {name: hidden_in(data) for name, data in objects.items()}
    assert not any(found.values()), found


def contents(server: StoreServer) -> Iterator[tuple[str, bytes]]:
    """The keys of the bucket, each with its content, decompressed."""
    from obstore.store import S3Store

    config: Any = {**server.settings().config}
    store = S3Store("bucket", config=config, client_options={"allow_http": True})
    for page in store.list("wh/shop.db/secrets"):
        for one in page:
            data = bytes(store.get(one["path"]).bytes())
            if data.startswith(b"Obj\x01"):
                reader = fastavro.reader(io.BytesIO(data))
                data += repr((list(reader), reader.metadata)).encode()
            elif data.startswith(b"PAR1"):
                file = pq.ParquetFile(io.BytesIO(data))
                data += repr(
                    (file.read().to_pylist(), file.metadata, file.schema_arrow.metadata)
                ).encode()
            yield one["path"], data
