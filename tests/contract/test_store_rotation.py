"""A program renews the keys of a profile in its file, and the store refuses the old ones, while a
table is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import PermissionDenied
from tests.kits.params import few
from tests.kits.seeds import MANY
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import FaultProxy, Rule

pytest.importorskip("boto3", reason="profiles need the extra aws")
REFUSED = (
    "<Error><Code>{code}</Code><Message>m</Message><AWSAccessKeyId>OLDKEY0</AWSAccessKeyId></Error>"
)


@pytest.fixture
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    with s3_server.proxied() as proxy:
        yield proxy


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the profile `team`."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return file


def renew(file: Path, number: int) -> None:
    file.write_text(
        f"[team]\naws_access_key_id = OLDKEY{number}\naws_secret_access_key = s3cr3t-never-shown\n"
    )


def refuse(proxy: FaultProxy, number: int, code: str, status: int) -> None:
    head = f"Credential=OLDKEY{number}/"
    proxy.add(Rule("answer", head=head, status=status, body=REFUSED.format(code=code), times=None))


def make(server: StoreServer, proxy: FaultProxy) -> PaimonTable:
    location, options = server.place(proxy)
    kept = {name: value for name, value in options.items() if "key" not in name}
    return PaimonTable.create(
        location, [("id", "BIGINT")], storage_options={**kept, "aws.profile": "team"}
    )


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number]})


@pytest.mark.parametrize(
    ("code", "status"),
    few(
        [("ExpiredToken", 400), ("ExpiredToken", 403), ("InvalidAccessKeyId", 403)],
        lambda code, status: code == "ExpiredToken" and status == 400,
    ),
)
def test_a_rotation_of_keys_in_the_middle_of_a_run_is_survived(
    s3_server: StoreServer, proxy: FaultProxy, keys: Path, code: str, status: int
) -> None:
    renew(keys, 0)
    table = make(s3_server, proxy)
    for number in range(3):
        table.append(rows(number))
        renew(keys, number + 1)
        refuse(proxy, number, code, status)
    table.append(rows(3))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert [one.id for one in table.snapshots()] == [1, 2, 3, 4]
    assert proxy.fired >= 3


def test_keys_that_are_refused_at_each_request_of_a_commit_are_renewed_there(
    s3_server: StoreServer, proxy: FaultProxy, keys: Path
) -> None:
    renew(keys, 0)
    table = make(s3_server, proxy)
    at, number, turns, refused = 0, 0, 0, True
    while refused:
        proxy.clear()
        renew(keys, number + 1)
        body = REFUSED.format(code="ExpiredToken")
        head = f"Credential=OLDKEY{number}/"
        proxy.add(Rule("answer", head=head, status=400, body=body, times=None, skip=at))
        table.append(rows(turns))
        refused, turns, at = bool(proxy.fired), turns + 1, at + (1 if MANY else 8)
        number += refused
    assert at > 10
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(turns))


def test_keys_that_nobody_renews_are_refused_with_the_cure(
    s3_server: StoreServer, proxy: FaultProxy, keys: Path
) -> None:
    renew(keys, 0)
    table = make(s3_server, proxy)
    refuse(proxy, 0, "ExpiredToken", 400)
    with pytest.raises(PermissionDenied, match=r"expired.*Give new ones") as raised:
        table.append(rows(0))
    assert "OLDKEY" not in repr(raised.value) + repr(raised.value.context)
