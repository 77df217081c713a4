"""Opens a store with obstore, in the process that uses it.

obstore also reads the environment of its process. Keys and tokens of the settings are therefore
handed over by a credential provider, which takes precedence over all variables. Otherwise a key of
the settings could be combined with a token of the environment.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final, NamedTuple

from paimon_stream.errors import InvalidOption, PermissionDenied, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.storage.client_settings import ClientSettings

_CLASS: Final = {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}
_ENDPOINT: Final = "aws_endpoint_url_s3"
"""The key of obstore that comes before its key `endpoint` and before the variable of the same
name.
"""
_BULK: Final = 6
"""How many times longer a request with a large body may take."""
_LIFETIME: Final = timedelta(minutes=9)
"""How long obstore keeps credentials of boto3, which renews them ten minutes before they end."""

_LOGINS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "s3": (
        (
            "web_identity_token_file",
            "container_credentials_relative_uri",
            "container_credentials_full_uri",
        ),
        ("AWS_ACCESS_KEY_ID",),
    ),
    "gcs": (
        ("service_account", "service_account_key", "application_credentials"),
        ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY"),
    ),
    "azure": (
        ("client_secret", "federated_token_file", "use_azure_cli", "msi_endpoint", "object_id"),
        (
            "AZURE_STORAGE_TOKEN",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
        ),
    ),
}
"""Logins that obstore finds itself, and the variables that come before them."""

Credential = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreSettings(ClientSettings):
    """The settings of one store, with everything that an executor needs to open it.

    Attributes:
        bucket: the bucket or container.
        config: keys of obstore's configuration.
        client: obstore's client options.
        profile: the AWS profile whose credentials boto3 finds and refreshes.
        max_retries: the most repetitions of a request that may be repeated.
        role: the arguments of the role to assume with those credentials, if any.
    """

    bucket: str
    config: Mapping[str, str] = field(hash=False)
    client: Mapping[str, Any] = field(hash=False)
    profile: str | None
    max_retries: int
    role: Mapping[str, str] = field(default_factory=dict, hash=False)


def open_store(
    settings: StoreSettings, *, max_retries: int, seconds: float = 60, bulk: bool = False
) -> Any:
    """A store of obstore whose keys are those of the whole bucket. Sends nothing, unless a region
    must be asked for or a role assumed.

    Args:
        settings: what opens the store.
        max_retries: how often a request is repeated.
        seconds: how long a request is repeated at most.
        bulk: whether requests with more than 1 MiB get more time.

    Raises:
        MissingExtra: obstore or boto3 is not installed.
        InvalidOption: obstore refuses the settings.
        UnsupportedFeature: the settings need a later release of obstore.
        PermissionDenied: the profile or role gives no credentials.
    """
    stores = require("obstore.store", "store", f"The store of {settings.location}")
    _check_environment(settings)
    config = dict(settings.config)
    provider = _provider(settings, config)
    if settings.kind == "s3":
        _complete_s3(settings, config, provider)
    if settings.kind == "azure":
        _check_account(settings, config)
    client = dict(settings.client)
    if bulk:
        client["timeout"] = f"{int(client['timeout'].removesuffix('ms')) * _BULK}ms"
    arguments = {
        "client_options": client,
        "retry_config": _retries(max_retries, seconds),
        "credential_provider": provider,
    }
    kind = getattr(stores, _CLASS[settings.kind])
    try:
        if "endpoint" in config and "AWS_ENDPOINT_URL_S3" in os.environ:
            with suppress(stores.BaseError):  # old releases know neither the variable nor the key
                return kind(
                    settings.bucket, config={**config, _ENDPOINT: config["endpoint"]}, **arguments
                )
        return kind(settings.bucket, config=config, **arguments)
    except Exception as refused:  # noqa: BLE001 - obstore's texts may hold values
        raise _in_our_words(settings, config, refused) from None


def _retries(most: int, seconds: float) -> dict[str, Any]:
    """The configuration by which obstore repeats requests: at most `most` times, and for at most
    `seconds`.
    """
    return {
        "max_retries": most,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=10),
            "base": 2,
        },
    }


def _in_our_words(
    settings: StoreSettings, config: Mapping[str, str], refused: Exception
) -> Exception:
    """This package's error for settings that obstore refuses. It does not contain their
    values.
    """
    text = str(refused)
    is_unknown_key = type(refused).__name__ == "UnknownConfigurationKeyError"
    if is_unknown_key or text.startswith("Invalid key"):
        all_keys = (*config, *settings.client)
        unknown = [name for name in all_keys if f"'{name}'" in text or f"{name}." in text]
        names = unknown or sorted(all_keys)
        return UnsupportedFeature(
            f"{settings.location}: the installed obstore is too old for {', '.join(names)}. "
            "Install a later one, or leave the option out.",
            location=settings.location,
            options=tuple(names),
        )
    options = tuple(sorted(config))
    return InvalidOption(
        f"{settings.location}: obstore refuses the values of the storage options "
        f"{', '.join(options)} ({type(refused).__name__}). "
        "Check keys, tokens and files for missing characters.",
        location=settings.location,
        options=options,
    )


def _check_account(settings: StoreSettings, config: Mapping[str, str]) -> None:
    """Raises `InvalidOption` if nothing names the storage account of Azure."""
    if config.get("account_name") or "AZURE_STORAGE_ACCOUNT_NAME" in os.environ:
        return
    raise InvalidOption(
        f"{settings.location} names no storage account. Give the option 'azure.account-name', "
        "or abfss://container@account.dfs.core.windows.net/path.",
        location=settings.location,
        option="azure.account-name",
    )


def _check_environment(settings: StoreSettings) -> None:
    """Raises `InvalidOption` for a login that obstore would ignore because of a variable of this
    process.
    """
    logins, variables = _LOGINS[settings.kind]
    login = next((login for login in logins if login in settings.config), None)
    # A provider hands over these keys, which come before all variables.
    has_key = not settings.config.keys().isdisjoint({"access_key_id", "account_key", "token"})
    if login is None or has_key:
        return
    for name in variables:
        if name in os.environ and os.environ[name] not in settings.config.values():
            raise InvalidOption(
                f"{settings.location}: {name} is set in the environment of this process, "
                f"and obstore would use it instead of {login}. Unset it.",
                location=settings.location,
                option=login,
            )


def _provider(settings: StoreSettings, config: dict[str, str]) -> Callable[[], Credential] | None:
    """Removes the credentials from the configuration, and returns a provider of them for obstore;
    None if obstore finds them itself.
    """
    if settings.kind == "s3":
        keys = _AwsKeys(
            key_id=config.pop("access_key_id", None),
            secret=config.pop("secret_access_key", None),
            token=config.pop("session_token", None),
        )
        if settings.profile is not None or settings.role:
            boto3 = _Boto3(
                settings.location, settings.profile, keys, settings.role, config.get("region")
            )
            _check_credentials(boto3)
            return boto3
        if keys.key_id is None:
            return None
        return _fixed(access_key_id=keys.key_id, secret_access_key=keys.secret, token=keys.token)
    names = _GCS_KEYS if settings.kind == "gcs" else _AZURE_KEYS
    for name, name_in_credential in names.items():
        value = config.pop(name, None)
        if value is not None:
            return _fixed(**{name_in_credential: value})
    return None


_GCS_KEYS: Final = {"bearer_token": "token"}
_AZURE_KEYS: Final = {"token": "token", "account_key": "access_key", "sas_key": "sas_token"}
"""The names of keys and tokens in obstore's credentials, by their names in its configuration."""


class _AwsKeys(NamedTuple):
    """A key of AWS. All parts are None if the options have no key.

    Attributes:
        key_id: the key's id.
        secret: the key.
        token: the token of a session.
    """

    key_id: str | None
    secret: str | None
    token: str | None


def _fixed(**credential: Any) -> Callable[[], Credential]:
    return lambda: {**credential, "expires_at": None}


def _expiring(key_id: str, key: str, token: str | None, expires_at: datetime) -> Credential:
    return {
        "access_key_id": key_id,
        "secret_access_key": key,
        "token": token,
        "expires_at": expires_at,
    }


@dataclass(slots=True, repr=False)
class _Boto3:
    """Credentials from boto3: those of a profile or a key, and of the role that is assumed with
    them. A profile's fixed keys are read anew each time, because a program may renew them in its
    file.
    """

    location: str
    profile: str | None
    keys: _AwsKeys
    role: Mapping[str, str]
    region: str | None
    _session: Any = None
    """boto3's session. It is made anew for credentials that it would not renew."""

    def __call__(self) -> Credential:
        return self._of_role() if self.role else self._of_profile()

    def session(self) -> Any:
        """The session whose credentials are current."""
        credentials = None if self._session is None else self._session.get_credentials()
        if credentials is None or not hasattr(credentials, "refresh_needed"):
            boto3 = require("boto3", "aws", f"The credentials for {self.location}")
            self._session = boto3.Session(*self.keys, self.region, profile_name=self.profile)
        return self._session

    def _of_profile(self) -> Credential:
        credentials = self.session().get_credentials()
        if credentials is None:
            raise LookupError("the profile has no credentials")
        frozen = credentials.get_frozen_credentials()
        return _expiring(
            frozen.access_key,
            frozen.secret_key,
            frozen.token,
            datetime.now(timezone.utc) + _LIFETIME,
        )

    def _of_role(self) -> Credential:
        role = {
            "RoleArn": self.role["role_arn"],
            "RoleSessionName": self.role.get("role_session_name", "paimon-stream"),
        }
        if "external_id" in self.role:
            role["ExternalId"] = self.role["external_id"]
        session = self.session()
        sts = session.client(
            "sts",
            endpoint_url=self.role.get("aws_endpoint_url_sts"),
            region_name=session.region_name or "us-east-1",
        )
        credentials = sts.assume_role(**role)["Credentials"]
        return _expiring(
            credentials["AccessKeyId"],
            credentials["SecretAccessKey"],
            credentials["SessionToken"],
            credentials["Expiration"].astimezone(timezone.utc),
        )


def _check_credentials(provider: _Boto3) -> None:
    """Raises `PermissionDenied` if boto3 gives no credentials now."""
    try:
        provider()
    except Exception as failed:  # noqa: BLE001 - texts of botocore hold values
        login = f"profile {provider.profile!r}" if provider.profile else "the given key"
        if provider.role:
            login = f"the role by {login}"
        raise PermissionDenied(
            f"{provider.location}: boto3 gives no credentials for {login} "
            f"({type(failed).__name__}). "
            "Try 'aws sts get-caller-identity' with it on this machine, and log in again if it fails.",
            path=provider.location,
        ) from None


def _complete_s3(settings: StoreSettings, config: dict[str, str], provider: Any) -> None:
    """Adds the region of a bucket at AWS, unless a region or an endpoint is set. If AWS does not
    tell the region, that of the profile is used, if there is one.
    """
    if "region" in config or "endpoint" in config:
        return
    url = f"https://s3.amazonaws.com/{settings.bucket}"
    client = settings.client
    try:  # AWS also tells the region to those who may not read the bucket
        config["region"] = asked_region(
            url, client.get("proxy_url"), client.get("root_certificate")
        )
    except (OSError, ValueError, LookupError):
        region = provider.session().region_name if isinstance(provider, _Boto3) else None
        if region is not None:
            config["region"] = region


@lru_cache(maxsize=64)
def asked_region(url: str, proxy: str | None, ca: str | None) -> str:
    """The region in the answer about a bucket. Raises `OSError`, and `LookupError` if the answer
    has none.
    """
    # Only here, because each worker of Spark imports this module, and few ask.
    import ssl
    import urllib.error
    import urllib.request

    context = ssl.create_default_context()
    if ca is not None:
        context.load_verify_locations(cadata=ca)
    handlers: list[Any] = [urllib.request.HTTPSHandler(context=context)]
    if proxy is not None:
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=5) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as refused:
        headers = refused.headers
    if "x-amz-bucket-region" not in headers:
        raise LookupError("the answer names no region")
    return str(headers["x-amz-bucket-region"])
