"""From a location, its options, Spark's configuration and the environment to the settings of a
store.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from paimon_stream.errors import ConfigError, InvalidOption, MissingExtra, UnsupportedFeature
from paimon_stream.options.store_names import store_option
from paimon_stream.options.store_options import STORE_OPTIONS
from paimon_stream.storage.location import store_location
from paimon_stream.storage.store_open import StoreSettings
from paimon_stream.storage.store_sources import options_for, settings_of

SECRET = "s3cr3t-never-shown"
PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
KEYS = {"s3.access-key": "id", "s3.secret-key": SECRET}
ABFS = "abfss://c1@acc.dfs.core.windows.net/t"


def settings(
    location: str = "s3://bucket/t",
    options: Mapping[str, str] | None = None,
    *,
    spark: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> StoreSettings:
    read = None if spark is None else lambda: spark
    return settings_of(
        store_location(location), options or {}, spark=read, environment=environment or {}
    )


def test_the_settings_have_all_that_a_store_needs() -> None:
    made = settings("s3a://bucket/wh/t/", {**KEYS, "s3.region": "eu-west-1"})
    assert (made.kind, made.location, made.bucket, made.prefix) == (
        "s3",
        "s3a://bucket/wh/t",
        "bucket",
        "wh/t",
    )
    assert made.config == {
        "access_key_id": "id",
        "secret_access_key": SECRET,
        "region": "eu-west-1",
    }
    assert made.client == {"timeout": "10000ms", "connect_timeout": "5000ms"}
    assert (made.profile, made.max_retries, made.role) == (None, 8, {})


def test_settings_can_be_pickled_and_show_no_secret() -> None:
    made = settings(options=KEYS)
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(settings(options=KEYS))
    assert SECRET not in repr(made) + str(made) + f"{made}"


@pytest.mark.parametrize("kind", STORE_OPTIONS)
def test_every_name_of_an_option_means_it_in_any_case(kind: str) -> None:
    for option in STORE_OPTIONS[kind]:
        assert option.doc.endswith(".")
        for name in (*option.names, *option.inverse, *option.environment, option.key):
            for form in (name, name.upper(), name.replace("-", "."), name.replace("_", "-")):
                found = store_option(kind, form)
                assert found is not None
                assert found.option is option
                assert found.inverse == (name in option.inverse)


@pytest.mark.parametrize(
    "names",
    [
        ("s3.access-key", "s3.secret-key", "s3.session.token"),
        ("s3a.access.key", "s3a.secret.key", "s3a.session.token"),
        ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token"),
        ("fs.s3a.bucket.bucket.access.key", "fs.s3a.bucket.bucket.secret.key", "s3.session-token"),
        ("fs.s3.accessKeyId", "fs.s3.accessKeySecret", "fs.s3.securityToken"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
        ("access_key_id", "secret_access_key", "session_token"),
        ("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
        ("client.access-key-id", "client.secret-access-key", "client.session-token"),
        ("FS.S3A.ACCESS.KEY", "Fs.S3a.Secret.Key", "fs.s3a.session_token"),
    ],
)
def test_keys_have_the_names_that_people_know(names: tuple[str, str, str]) -> None:
    made = settings(options=dict(zip(names, ("id", SECRET, "token"), strict=True)))
    assert made.config == {
        "access_key_id": "id",
        "secret_access_key": SECRET,
        "session_token": "token",
    }


def test_the_first_source_wins_and_a_login_is_of_one_source() -> None:
    spark = {
        "fs.s3a.access.key": "spark",
        "fs.s3a.secret.key": "k",
        "fs.s3a.endpoint.region": "eu-west-2",
    }
    own = {
        "AWS_ACCESS_KEY_ID": "env",
        "AWS_SECRET_ACCESS_KEY": "k",
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "r",
    }
    assert settings(environment=own).config["session_token"] == "t"
    mixed = settings(options={"s3.region": "eu-west-1"}, spark=spark, environment=own).config
    assert mixed == {"access_key_id": "spark", "secret_access_key": "k", "region": "eu-west-1"}
    called = settings(options=KEYS, spark=spark, environment=own).config
    assert called == {"access_key_id": "id", "secret_access_key": SECRET, "region": "eu-west-2"}
    off = {"paimon-stream.store.from-spark": "false"}
    assert settings(options=off, spark=spark, environment=own).config["access_key_id"] == "env"


def test_of_two_spellings_the_one_that_stands_first_in_the_table_counts() -> None:
    for names in (("s3.endpoint.region", "AWS_REGION"), ("AWS_REGION", "s3.endpoint.region")):
        given = {name: name.lower().replace("_", "-") for name in names}
        assert settings(options=given).config["region"] == "s3.endpoint.region"
    both = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.bucket.access.key": "own",
        "s3.secret-key": "k",
    }
    assert settings(options=both).config["access_key_id"] == "own"


def test_an_empty_value_is_none() -> None:
    assert settings(options={**KEYS, "s3.session.token": " "}).config.keys() == {
        "access_key_id",
        "secret_access_key",
    }


@pytest.mark.parametrize(
    ("location", "name", "hint"),
    [
        ("s3://bucket/t", "s3.acces-key", "Did you mean 's3.access-key'"),
        ("s3://bucket/t", "AWS_SECRET_ACCESKEY", "Did you mean"),
        ("gs://bucket/t", "s3.secret-key", "another kind of store"),
        (ABFS, "fs.azure.account.key.other.dfs.core.windows.net", "another bucket, account"),
        ("s3://bucket/t", "fs.s3a.bucket.other.secret.key", "another bucket, account"),
        ("s3://bucket/t", "bogus", "Unknown storage option"),
        (
            "s3://bucket/t",
            "paimon-stream.store.timout",
            "Did you mean 'paimon-stream.store.timeout'",
        ),
        ("s3://bucket/t", "paimon-stream.unsafe-single-writer", "not an option of object stores"),
    ],
)
def test_unknown_options_are_refused_by_name_alone(location: str, name: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=hint) as raised:
        settings(location, {name: SECRET})
    assert name in str(raised.value)
    assert SECRET not in str(raised.value) + repr(raised.value.context)


@pytest.mark.parametrize(
    ("location", "name", "value"),
    [
        ("s3://bucket/t", "fs.s3a.custom.signers", SECRET),
        ("s3://bucket/t", "s3.signer", SECRET),
        ("s3://bucket/t", "aws_allow_invalid_certificates", "true"),
        ("s3://bucket/t", "AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        ("s3://bucket/t", "fs.s3a.delegation.token.binding", SECRET),
        ("s3://bucket/t", "fs.s3a.aws.credentials.provider", f"org.example.{SECRET}"),
        ("s3://bucket/t", "s3.encryption.algorithm", "CSE-KMS"),
        ("gs://bucket/t", "fs.gs.auth.type", "ACCESS_TOKEN_PROVIDER"),
        ("gs://bucket/t", "fs.gs.auth.service.account.private.key", SECRET),
        (ABFS, "adls.connection-string", SECRET),
        (ABFS, "fs.azure.sas.token.provider.type.acc.dfs.core.windows.net", SECRET),
        ("s3://bucket/t", "fs.s3a.bucket.bucket.custom.signers", SECRET),
        (ABFS, "fs.azure.account.auth.type.acc.dfs.core.windows.net", "Custom"),
        (ABFS, "fs.azure.account.oauth.provider.type", f"org.example.{SECRET}"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(location: str, name: str, value: str) -> None:
    for where in ("options", "spark"):
        with pytest.raises(UnsupportedFeature) as raised:
            settings(location, **{where: {name: value}})
        assert name in str(raised.value)
        assert value not in str(raised.value) + repr(raised.value.context)


def test_a_refusal_of_sparks_configuration_says_how_to_pass_it_over() -> None:
    spark = {"fs.s3a.custom.signers": "x"}
    with pytest.raises(UnsupportedFeature, match="from-spark to false"):
        settings(spark=spark)
    off = {"paimon-stream.store.from-spark": "false"}
    assert settings(options=off, spark=spark).config == {}
    settings_of(
        store_location("s3://bucket/t"), off, spark=lambda: pytest.fail("is read"), environment={}
    )


def test_other_names_of_sparks_configuration_are_sparks_own() -> None:
    spark = {
        "fs.s3a.threads.max": "96",
        "fs.s3a.bucket.other.secret.key": "k",
        "fs.s3a.custom.signers": "",
    }
    assert settings(spark=spark).config == {}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"s3.access-key": SECRET}, "belong together"),
        ({"s3.secret-key": SECRET}, "belong together"),
        ({"s3.session.token": SECRET}, "belong together"),
        ({**KEYS, "aws.profile": "p"}, "Give one of them"),
        ({"s3.path.style.access": SECRET}, "neither true nor false"),
        ({"s3.endpoint": f"https://user:{SECRET}@host"}, "is not a URL"),
        ({"s3.endpoint": f"ftp://{SECRET}"}, "is not a URL"),
        ({"s3.endpoint": f"https://[{SECRET}"}, "is not a URL"),
        ({"s3.endpoint": f"https://[{SECRET}]:80"}, "is not a URL"),
        ({"s3.endpoint": "http://minio.example:9000"}, "has no TLS"),
        ({"s3.endpoint": "minio.example:9000", "s3.connection.ssl.enabled": "false"}, "has no TLS"),
        ({"s3.encryption.key": SECRET}, "needs 's3.encryption.algorithm'"),
        (
            {"s3.encryption.key": SECRET, "s3.encryption.algorithm": "AES256"},
            "no meaning with SSE-S3",
        ),
        ({"s3.encryption.algorithm": "SSE-C"}, "needs the key"),
        ({"AWS_CA_BUNDLE": f"/nowhere/{SECRET}"}, "cannot be read"),
        ({"proxy_url": SECRET}, "is not a URL"),
        ({"proxy_url": f"http://[{SECRET}"}, "is not a URL"),
        ({"fs.s3a.proxy.host": "h", "fs.s3a.proxy.port": SECRET}, "number of a port"),
        ({"role_session_name": SECRET}, "Give 's3.role-arn'"),
        (
            {"fs.s3a.aws.credentials.provider": "a.AssumedRoleCredentialProvider"},
            "assumed.role.arn",
        ),
        ({"paimon-stream.store.timeout": "0 s"}, "at least 1"),
        ({"paimon-stream.store.max-retries": "-1"}, "from 0 to 100"),
    ],
)
def test_values_that_cannot_be_used_are_refused_and_not_shown(
    options: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidOption, match=why) as raised:
        settings(options=options)
    assert SECRET not in str(raised.value) + repr(raised.value.context)


def test_endpoints_have_a_scheme_a_region_and_a_style() -> None:
    def of(**options: str) -> dict[str, str]:
        return dict(
            settings(options={f"s3.{k.replace('_', '.')}": v for k, v in options.items()}).config
        )

    assert of(endpoint="minio.example:9000") == {
        "endpoint": "https://minio.example:9000",
        "region": "us-east-1",
    }
    assert of(endpoint="https://s3.eu-west-3.amazonaws.com/") == {
        "endpoint": "https://s3.eu-west-3.amazonaws.com",
        "region": "eu-west-3",
    }
    assert of(endpoint="https://h", path_style_access="false") == {
        "endpoint": "https://bucket.h",
        "region": "us-east-1",
        "virtual_hosted_style_request": "true",
    }
    assert (
        of(endpoint="https://bucket.h", force_virtual_addressing="true")["endpoint"]
        == "https://bucket.h"
    )
    assert of(endpoint="s3.amazonaws.com") == {}
    assert of(region="cn-north-1")["endpoint"] == "https://s3.cn-north-1.amazonaws.com.cn"
    assert settings(options={"endpoint": "http://127.0.0.1:9000"}).client["allow_http"] is True
    assert (
        settings(options={"endpoint": "http://h", "allow_http": "true"}).client["allow_http"]
        is True
    )
    assert (
        "allow_http" not in settings(options={"endpoint": "https://h", "allow_http": "true"}).client
    )


def test_oss_is_reached_by_its_s3_endpoint() -> None:
    keys = {"fs.oss.accessKeyId": "id", "fs.oss.accessKeySecret": "k", "fs.oss.securityToken": "t"}
    made = settings(
        "oss://bucket/t", {**keys, "fs.oss.endpoint": "oss-cn-hangzhou-internal.aliyuncs.com"}
    )
    assert made.config == {
        "access_key_id": "id",
        "secret_access_key": "k",
        "session_token": "t",
        "region": "cn-hangzhou",
        "endpoint": "https://bucket.s3.oss-cn-hangzhou-internal.aliyuncs.com",
        "virtual_hosted_style_request": "true",
        "disable_bulk_delete": "true",
    }
    with pytest.raises(InvalidOption, match=r"fs\.oss\.endpoint"):
        settings("oss://bucket/t", keys)


def test_encryption_is_passed_on() -> None:
    kms = {
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": "arn",
        "sse_bucket_key_enabled": "true",
    }
    assert settings(options=kms).config == {
        "aws_server_side_encryption": "aws:kms",
        "aws_sse_kms_key_id": "arn",
        "aws_sse_bucket_key_enabled": "true",
    }
    own = {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c", "AWS_SSE_CUSTOMER_KEY_BASE64": "a2V5"}
    assert settings(options=own).config == {
        "aws_server_side_encryption": "sse-c",
        "aws_sse_customer_key_base64": "a2V5",
    }
    assert settings(environment=own).config == settings(options=own).config


def test_proxies_and_certificates_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "0.12.1")
    (tmp_path / "ca.pem").write_text(PEM)
    given = {
        "proxy_url": "http://u:p@h:3128",
        "root_certificate": str(tmp_path / "ca.pem"),
        "proxy_excludes": "a",
    }
    made = settings("gs://bucket/t", given)
    assert made.client["proxy_url"] == "http://u:p@h:3128"
    assert made.client["proxy_excludes"] == "a"
    assert made.client["root_certificate"] == PEM
    assert (
        settings(environment={"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}).client["root_certificate"]
        == PEM
    )
    hadoop = {
        "fs.s3a.proxy.host": "h",
        "fs.s3a.proxy.username": "u@",
        "fs.s3a.proxy.password": "p/",
    }
    assert settings(spark=hadoop).client["proxy_url"] == "http://u%40:p%2F@h:80"


def test_an_old_obstore_is_said_to_read_no_bundle_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    bundle = {"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    monkeypatch.setattr(metadata, "version", lambda _: "0.10.1")
    assert "root_certificate" not in settings(environment=bundle).client
    assert "SSL_CERT_FILE" in caplog.text
    assert settings(options=bundle).client["root_certificate"] == PEM
    monkeypatch.setattr(metadata, "version", lambda _: "0.11.0b1")
    assert settings(environment=bundle).client["root_certificate"] == PEM


def test_our_own_options_have_short_names() -> None:
    given = {"timeout": "30s", "connect_timeout": "2s", "aws_max_retries": "3"}
    made = settings(options=given)
    assert (made.client["timeout"], made.client["connect_timeout"], made.max_retries) == (
        "30000ms",
        "2000ms",
        3,
    )


def test_a_profile_needs_boto3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    asked: list[dict[str, Mapping[str, str]]] = [
        {"options": {"aws.profile": "sso"}},
        {"environment": {"AWS_PROFILE": "sso"}},
        {"spark": {"fs.s3a.aws.credentials.provider": "a.b.ProfileCredentialsProvider"}},
        {"options": {**KEYS, "s3.role-arn": "arn:aws:iam::1:role/r"}},
    ]
    for given in asked:
        with pytest.raises(MissingExtra, match="'aws'"):
            settings(**given)  # type: ignore[arg-type]
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id = a\n")
    with pytest.raises(MissingExtra, match="'default'"):
        settings(environment={"HOME": str(tmp_path)})
    found_elsewhere = {
        "HOME": str(tmp_path),
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23",
    }
    assert settings(environment=found_elsewhere).profile is None
    assert settings(options=KEYS, environment={"HOME": str(tmp_path)}).profile is None
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_PROFILE": "sso"}
    assert settings(environment=keys).profile is None


def test_profiles_and_roles_are_kept_for_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", __import__("types"))
    assert settings(options={"aws.profile": "sso"}).profile == "sso"
    made = settings(
        options={**KEYS, "fs.s3a.assumed.role.arn": "arn", "fs.s3a.assumed.role.external.id": "x"}
    )
    assert made.role == {"role_arn": "arn", "external_id": "x"}
    assert made.config["access_key_id"] == "id"
    web = settings(options={"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn"})
    assert web.config == {"web_identity_token_file": "/token", "role_arn": "arn"}
    assert web.role == {}


def test_anonymous_requests_are_not_signed() -> None:
    hadoop = {
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    }
    for given in (hadoop, {"s3.anonymous": "true"}, {"AWS_SKIP_SIGNATURE": "TRUE"}):
        assert settings(options=given).config == {"skip_signature": "true"}


def test_azure_takes_hadoops_names_for_its_account() -> None:
    host = "acc.dfs.core.windows.net"
    assert settings(ABFS, {f"fs.azure.account.key.{host}": "a2V5"}).config == {
        "account_name": "acc",
        "account_key": "a2V5",
    }
    assert (
        settings(ABFS, {f"fs.azure.sas.fixed.token.{host}": "?sig=x"}).config["sas_key"] == "sig=x"
    )
    assert (
        settings(ABFS, {"fs.azure.sas.c1.acc.blob.core.windows.net": "sig=x"}).config["sas_key"]
        == "sig=x"
    )
    oauth = {
        f"fs.azure.account.auth.type.{host}": "OAuth",
        f"fs.azure.account.oauth.provider.type.{host}": "org.apache.hadoop.oauth2.ClientCredsTokenProvider",
        f"fs.azure.account.oauth2.client.id.{host}": "id",
        f"fs.azure.account.oauth2.client.secret.{host}": "k",
        f"fs.azure.account.oauth2.client.endpoint.{host}": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    expected = {
        "account_name": "acc",
        "client_id": "id",
        "client_secret": "k",
        "tenant_id": "tenant",
        "authority_host": "https://login.microsoftonline.com",
    }
    assert settings(ABFS, oauth).config == expected
    assert settings(ABFS, spark=oauth).config == expected


def test_azure_finds_its_account_in_the_location_or_the_options() -> None:
    given = {"azure.account-name": "acc", "fs.azure.account.key.acc.dfs.core.windows.net": "a2V5"}
    assert settings("az://c1/t", given).config == {"account_name": "acc", "account_key": "a2V5"}
    env = {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    assert settings("az://c1/t", environment=env).config == {
        "account_name": "acc",
        "account_key": "a2V5",
    }
    china = settings("abfss://c1@acc.dfs.core.chinacloudapi.cn/t").config
    assert china["endpoint"] == "https://acc.blob.core.chinacloudapi.cn"
    lake = settings("abfss://space@onelake.dfs.fabric.microsoft.com/t").config
    assert lake["endpoint"] == "https://onelake.blob.fabric.microsoft.com"
    emulator = settings(ABFS, {"azure.endpoint": "http://127.0.0.1:10000/acc"})
    assert emulator.config["endpoint"] == "http://127.0.0.1:10000/acc"
    assert emulator.client["allow_http"] is True


def test_malformed_keys_are_refused_before_they_are_used() -> None:
    with pytest.raises(InvalidOption, match="not base64"):
        settings(ABFS, {"adls.account-key": f"{SECRET}!"})
    for text in (SECRET, "[" * 100_000):
        with pytest.raises(InvalidOption, match="JSON"):
            settings("gs://bucket/t", {"gs.service-account-key": text})
    with pytest.raises(InvalidOption, match="is not a URL"):
        settings("gs://bucket/t", {"gs.service-account-key": '{"gcs_base_url": "http://["}'})
    with pytest.raises(InvalidOption, match="is not a URL"):
        settings(ABFS, {"fs.azure.account.oauth2.client.endpoint": f"https://[{SECRET}"})


def test_google_takes_a_file_a_text_or_a_token() -> None:
    file = {
        "fs.gs.auth.service.account.json.keyfile": "/key.json",
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
    }
    assert settings("gs://bucket/t", file).config == {"service_account": "/key.json"}
    text = '{"gcs_base_url": "http://127.0.0.1:1", "disable_oauth": true}'
    made = settings("gs://bucket/t", {"gs.service-account-key": text})
    assert made.config == {"service_account_key": text}
    assert made.client["allow_http"] is True
    assert settings("gs://bucket/t", {"gcs.oauth2.token": "t"}).config == {"bearer_token": "t"}
    with pytest.raises(ConfigError, match="has no TLS"):
        settings(
            "gs://bucket/t", {"gs.service-account-key": text.replace("127.0.0.1", "example.org")}
        )


def test_a_checkpoint_on_another_store_takes_the_options_that_it_knows() -> None:
    host = "fs.azure.account.key.acc.dfs.core.windows.net"
    ours = {"timeout": "1s", "paimon-stream.store.max-retries": "1"}
    given = {**KEYS, "adls.account-key": "k", host: "k", host.replace("acc", "other"): "k", **ours}
    assert options_for(store_location(ABFS), given).keys() == {"adls.account-key", host, *ours}
