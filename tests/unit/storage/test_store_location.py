"""Locations in object stores as users write them."""

from __future__ import annotations

import pytest

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.storage.location import shown_location, store_location

SECRET = "s3cr3t-never-shown"


@pytest.mark.parametrize(
    ("location", "kind", "bucket", "prefix", "host"),
    [
        ("s3://bucket/wh/shop.db/orders", "s3", "bucket", "wh/shop.db/orders", ""),
        ("s3a://my.bucket-1/t/", "s3", "my.bucket-1", "t", ""),
        ("S3N://bucket//a///b//", "s3", "bucket", "a/b", ""),
        (
            "s3://b-1/ü b%2Fc/dt=2024-01-01T00:00@x",
            "s3",
            "b-1",
            "ü b%2Fc/dt=2024-01-01T00:00@x",
            "",
        ),
        ("oss://bucket/t", "s3", "bucket", "t", ""),
        ("gs://b_1/t", "gcs", "b_1", "t", ""),
        ("gcs://bucket/t", "gcs", "bucket", "t", ""),
        (
            "abfss://c1@acc.dfs.core.windows.net/a/b",
            "azure",
            "c1",
            "a/b",
            "acc.dfs.core.windows.net",
        ),
        ("abfs://c1@acc.dfs.core.windows.net/a", "azure", "c1", "a", "acc.dfs.core.windows.net"),
        (
            "wasbs://$root@acc.blob.core.windows.net/a",
            "azure",
            "$root",
            "a",
            "acc.blob.core.windows.net",
        ),
        ("abfss://c1/a", "azure", "c1", "a", ""),
        ("az://c1/a", "azure", "c1", "a", ""),
    ],
)
def test_a_location_names_a_bucket_and_a_folder(
    location: str, kind: str, bucket: str, prefix: str, host: str
) -> None:
    place = store_location(location)
    assert (place.kind, place.bucket, place.prefix, place.host) == (kind, bucket, prefix, host)
    assert place.shown == location.rstrip("/")


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("s3://bucket", "a bucket alone"),
        ("gs://bucket///", "a bucket alone"),
        ("abfss://c1@acc.dfs.core.windows.net/", "a bucket alone"),
        ("s3:/bucket/t", "two slashes"),
        ("s3:bucket/t", "two slashes"),
        ("s3:///t", "names no bucket"),
        ("s3://b b/t", "names no bucket"),
        ("abfss://c1@/t", "names no bucket"),
        ("s3://localhost:9000/bucket/t", "no user, password or port"),
        ("s3://bucket/a/../t", "'..'"),
        ("s3://bucket/a/./t", "'.'"),
        ("s3://bucket/a\nb", "cannot be printed"),
        ("s3://bucket/a\0b", "cannot be printed"),
        ("s3://bucket/a\udce4", "cannot be printed"),
        ("abfss://c1@acc.dfs.core.windows.net/a\\b", "backslash"),
        ("s3://bucket/" + "k" * 1025, "1,025 bytes"),
        ("gs://bucket/" + "ü" * 513, "1,026 bytes"),
    ],
)
def test_locations_that_no_store_can_hold_are_refused(location: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        store_location(location)


def test_a_key_of_a_thousand_characters_is_a_location() -> None:
    assert len(store_location("s3://bucket/" + "k" * 1000).prefix) == 1000


def test_a_directory_bucket_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="directory bucket"):
        store_location("s3://name--use1-az4--x-s3/t")


@pytest.mark.parametrize(
    "location",
    [
        f"s3://AKIA:{SECRET}@bucket/t",
        f"s3://AKIA:a/{SECRET}@bucket/t",
        f"s3://AKIA:12/{SECRET}@bucket/t",
        f"s3a://{SECRET}@bucket/t",
        f"s3://AKIA:{SECRET}",
        f"s3://AKIA:x?{SECRET}@bucket/t",
        f"s3://bucket/t?X-Amz-Signature={SECRET}",
        f"gs://bucket/t#{SECRET}",
        f"abfss://c1@acc.dfs.core.windows.net/t?sv=1&sig={SECRET}",
        f"abfss://c1:{SECRET}@acc.dfs.core.windows.net/t",
        f"abfss://c1@acc:{SECRET}/t",
        f"az://user:{SECRET}@c1/t",
        f"hdfs://user:{SECRET}@host:8020/t",
    ],
)
def test_credentials_in_a_location_are_refused_and_never_shown(location: str) -> None:
    assert SECRET not in shown_location(location)
    if location.startswith("hdfs"):
        return
    with pytest.raises(InvalidOption) as raised:
        store_location(location)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value.context)


def test_a_port_is_shown_and_a_container_is_no_user() -> None:
    assert shown_location("hdfs://user@host:8020/t") == "hdfs://host:8020/t"
    assert (
        shown_location("abfss://c1@acc.dfs.core.windows.net/t")
        == "abfss://c1@acc.dfs.core.windows.net/t"
    )
