"""A location and options, as users write them, reach a real server of each kind of store."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.storage.base import PutResult
from tests.kits.stores import StoreServer

pytestmark = pytest.mark.lowest

HOST = "devaccount.dfs.core.windows.net"


def options_of(kind: str, server: StoreServer) -> list[Mapping[str, str]]:
    """The same options under the names of several programs. The fakes of GCS take a service account
    only.
    """
    config = server.settings().config
    if kind == "gcs":
        key = config["service_account_key"]
        return [{"gs.service-account-key": key}, {"GOOGLE_SERVICE_ACCOUNT_KEY": key}]
    if kind == "azure":
        key, endpoint = config["account_key"], config["endpoint"]
        return [
            {"azure.endpoint": endpoint, f"fs.azure.account.key.{HOST}": key},
            {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_ACCOUNT_KEY": key},
            {"endpoint": endpoint, "adls.account-key": key},
        ]
    names = (
        ("s3.endpoint", "s3.access-key", "s3.secret-key"),
        ("fs.s3a.endpoint", "fs.s3a.access.key", "fs.s3a.secret.key"),
        ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key"),
    )
    values = (config["endpoint"], config["access_key_id"], config["secret_access_key"])
    return [dict(zip(one, values, strict=True)) for one in names]


def test_options_open_the_store(store_server: StoreServer) -> None:
    kind = store_server.kind
    prefix = store_server.settings().prefix
    location = {
        "s3": f"s3a://bucket/{prefix}",
        "gcs": f"gs://bucket/{prefix}",
        "azure": f"abfss://container@{HOST}/{prefix}",
    }[kind]
    every = options_of(kind, store_server)
    for number, options in enumerate(every):
        storage = pickle.loads(pickle.dumps(open_storage(location, options)))
        expected = PutResult.EXISTS if number else PutResult.CREATED
        assert storage.put_if_absent("a b/ü", b"x") is expected
        assert storage.read("a b/ü") == b"x"
    table = PaimonTable.create(f"{location}/t", [("id", "INT")], storage_options=every[0])
    assert PaimonTable.load(f"{location}/t/", storage_options=every[-1]).schema == table.schema


@pytest.mark.parametrize("scheme", ["s3", "s3n"])
def test_the_scheme_does_not_matter(s3_server: StoreServer, scheme: str) -> None:
    options = options_of("s3", s3_server)[0]
    prefix = s3_server.settings().prefix
    open_storage(f"s3a://bucket/{prefix}", options).write("a", b"x")
    assert open_storage(f"{scheme}://bucket//{prefix}/", options).read("a") == b"x"
