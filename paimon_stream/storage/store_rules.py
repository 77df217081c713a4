"""Computes obstore's configuration from the options of a store, by the rules of each kind of store.
Each rule reads the options that concern it, and sets its part of a `StoreSetup`.
"""

import base64
import ipaddress
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

from paimon_stream.errors import InvalidOption
from paimon_stream.storage.location import StoreLocation
from paimon_stream.storage.store_values import StoreValues

_ENCRYPTION: Final = {
    "sse-s3": "AES256",
    "aes256": "AES256",
    "sse-kms": "aws:kms",
    "aws:kms": "aws:kms",
    "dsse-kms": "aws:kms:dsse",
    "aws:kms:dsse": "aws:kms:dsse",
    "sse-c": "sse-c",
}
_ANONYMOUS: Final = {"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"}
_CHAIN: Final = _ANONYMOUS | {
    "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "ProfileCredentialsProvider",
    "AssumedRoleCredentialProvider",
}
_LOGINS_OF_GCS: Final = {
    "APPLICATION_DEFAULT",
    "COMPUTE_ENGINE",
    "SERVICE_ACCOUNT_JSON_KEYFILE",
    "UNAUTHENTICATED",
}
_LOGINS_OF_AZURE: Final = {"sharedkey", "oauth", "sas", "workloadidentity"}
_TOKENS_OF_AZURE: Final = {
    "ClientCredsTokenProvider",
    "MsiTokenProvider",
    "WorkloadIdentityTokenProvider",
}
_HOST_OF_OSS: Final = re.compile(r"oss-([a-z0-9-]+?)(-internal)?\.aliyuncs\.com")
_HOST_OF_S3: Final = re.compile(r"://s3[.-](?:dualstack\.)?([a-z]+-[a-z-]+-\d)\.amazonaws\.com")


@dataclass(slots=True, repr=False)
class StoreSetup:
    """The setup of a store that its options ask for.

    Attributes:
        config: the keys of obstore's configuration.
        client: obstore's client options.
        profile: the AWS profile whose credentials boto3 finds.
        role: the arguments of the role that boto3 assumes; {} for none.
        login: whether the options contain any credentials.
        allow_http: whether an endpoint may have no TLS.
    """

    config: dict[str, str] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    profile: str | None = None
    role: dict[str, str] = field(default_factory=dict)
    login: bool = True
    allow_http: bool = False


def apply_rules(
    place: StoreLocation, values: StoreValues, *, allow_http: bool, web_identity: bool = False
) -> StoreSetup:
    """The setup of a store that the values of its options ask for.

    Args:
        place: the table's location.
        values: the values of all options.
        allow_http: whether an endpoint may have no TLS.
        web_identity: whether the environment has a web identity.

    Raises:
        InvalidOption: a value cannot be used, or contradicts another one.
        UnsupportedFeature: a value asks for something that is not supported.
    """
    setup = StoreSetup(allow_http=allow_http)
    _proxy(values, setup)
    _root_certificate(values, setup)
    match place.kind:
        case "s3":
            _s3_endpoint(place, values, setup)
            _s3_login(values, setup, web_identity=web_identity)
            # `_s3_role` sets this URL. At this point the URL is checked, and HTTP is allowed if the
            # URL needs that.
            _url(values, "aws_endpoint_url_sts", setup)
            _s3_encryption(values, setup)
            setup.config |= values.of("metadata_endpoint", "checksum_algorithm")
            for switch in ("imdsv1_fallback", "request_payer", "unsigned_payload"):
                if values.switch(switch):
                    setup.config[switch] = "true"
        case "gcs":
            _gcs(values, setup)
        case _:
            _azure(place, values, setup)
    return setup


def _proxy(values: StoreValues, setup: StoreSetup) -> None:
    setup.client |= values.of("proxy_url", "proxy_excludes")
    if values.has("proxy_url"):
        if not _parts(values, "proxy_url", values.text("proxy_url")).hostname:
            raise values.wrong("proxy_url", "is not a URL such as http://host:port.")
    elif values.has("proxy_host"):
        setup.client["proxy_url"] = _proxy_url(values)


def _proxy_url(values: StoreValues) -> str:
    """The URL of a proxy. Its parts are separate options."""
    user = values.text("proxy_user")
    password = values.text("proxy_password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    scheme = "http"
    usual_port = "80"
    if values.switch("proxy_ssl"):
        scheme = "https"
        usual_port = "443"
    port = values.text("proxy_port") or usual_port
    if not port.isdigit():
        raise values.wrong("proxy_port", "is not the number of a port.")
    return f"{scheme}://{login}{values.text('proxy_host')}:{port}"


def _root_certificate(values: StoreValues, setup: StoreSetup) -> None:
    trusted = values.text("root_certificate")
    if trusted is None:
        return
    if "-----BEGIN" not in trusted:
        try:
            trusted = Path(trusted).read_text()
        except (OSError, ValueError) as failed:
            raise values.wrong(
                "root_certificate",
                f"cannot be read ({type(failed).__name__}). "
                "Give the PEM file of a CA, or its text.",
            ) from None
    setup.client["root_certificate"] = trusted


def _url(values: StoreValues, key: str, setup: StoreSetup, *, tls: bool = True) -> str | None:
    """The URL of an endpoint, without a slash at its end; None if the option is not set. `tls` says
    whether an endpoint without a scheme gets `https`.
    """
    url = values.text(key)
    if url is None:
        return None
    if "://" not in url:
        url = f"https://{url}" if tls else f"http://{url}"
    url = url.rstrip("/")
    parts = _parts(values, key, url)
    is_of_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    has_login_or_query = "@" in parts.netloc or bool(parts.query)
    if not is_of_web or has_login_or_query:
        raise values.wrong(key, "is not a URL such as https://host:port, without user and query.")
    _check_tls(values, key, url, setup)
    return url


def _parts(values: StoreValues, key: str, url: str | None) -> SplitResult:
    """The parts of a URL. For None, all parts are empty."""
    try:
        return urlsplit(url or "")
    except ValueError:
        raise values.wrong(key, "is not a URL such as https://host:port.") from None


def _check_tls(values: StoreValues, key: str, url: str, setup: StoreSetup) -> None:
    """Raises `InvalidOption` for an address without TLS, unless such an address is allowed, or is
    an address of this machine. If it is accepted, the client gets the setting that allows HTTP.
    """
    if not url.startswith("http://"):
        return
    is_loopback = _is_loopback(_parts(values, key, url).hostname or "")
    if not is_loopback and not setup.allow_http:
        raise values.wrong(
            key,
            "has no TLS: rows and tokens would go over the network in the clear. "
            "Give https://…, or set paimon-stream.store.allow-http to true.",
        )
    setup.client["allow_http"] = True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _s3_endpoint(place: StoreLocation, values: StoreValues, setup: StoreSetup) -> None:
    """Sets the endpoint, the region, and the place of the bucket's name in a request."""
    url = _url(values, "endpoint", setup, tls=values.switch("ssl") is not False)
    region = values.text("region")
    path_style = values.switch("path_style")
    if url == "https://s3.amazonaws.com":
        url = None  # Hadoop's word for AWS as a whole
    if place.scheme == "oss":
        if url is None:
            raise InvalidOption(
                f"{place.shown} needs the storage option 'fs.oss.endpoint', "
                "such as oss-cn-hangzhou.aliyuncs.com.",
                option="fs.oss.endpoint",
                location=place.shown,
            )
        url = re.sub(r"://(oss-)", r"://s3.\1", url)
        region = region or _first_group(_HOST_OF_OSS, url)
        path_style = bool(path_style)  # unless it is asked for, OSS takes the bucket in the host
        setup.config["disable_bulk_delete"] = "true"
    if url is not None:
        region = region or _first_group(_HOST_OF_S3, url) or "us-east-1"
        if path_style is False and f"://{place.bucket}." not in url:
            url = url.replace("://", f"://{place.bucket}.", 1)
    elif region and region.startswith("cn-"):
        url = f"https://s3.{region}.amazonaws.com.cn"
    if path_style is False:
        setup.config["virtual_hosted_style_request"] = "true"
    if region:
        setup.config["region"] = region
    if url:
        setup.config["endpoint"] = url


def _first_group(pattern: re.Pattern[str], url: str) -> str | None:
    """The text that the pattern's first group matches in the URL; None if there is no match."""
    match = pattern.search(url)
    return None if match is None else match[1]


def _s3_login(values: StoreValues, setup: StoreSetup, *, web_identity: bool) -> None:
    """Sets the credentials: none, a key, a profile, a role, or those of a container. `web_identity`
    says whether the environment has a web identity.
    """
    classes = _classes(values, "credentials_provider", _CHAIN)
    if values.switch("skip_signature") or classes & _ANONYMOUS:
        setup.config["skip_signature"] = "true"
        return
    keys = values.of("access_key_id", "secret_access_key", "session_token")
    if keys and not {"access_key_id", "secret_access_key"} <= keys.keys():
        raise values.wrong(
            next(iter(keys)), "is not enough: the key's id and the key belong together."
        )
    setup.profile = values.text("profile")
    if keys and setup.profile is not None:
        if not values.from_environment("profile"):
            raise values.wrong(
                "profile", "names a profile, and there is a key, too. Give one of them."
            )
        setup.profile = None
    if "ProfileCredentialsProvider" in classes and not keys and setup.profile is None:
        setup.profile = "default"
    setup.config |= keys
    _s3_role(
        values,
        setup,
        web_identity=web_identity,
        needed="AssumedRoleCredentialProvider" in classes,
    )
    container = values.of(
        "container_credentials_relative_uri",
        "container_credentials_full_uri",
        "container_authorization_token_file",
    )
    setup.config |= container
    has_web_identity = values.has("web_identity_token_file")
    setup.login = has_web_identity or bool(keys or setup.profile or setup.role or container)


def _s3_role(values: StoreValues, setup: StoreSetup, *, web_identity: bool, needed: bool) -> None:
    """Sets the role that is assumed. obstore assumes a role with a web identity, and boto3 with any
    other credentials. `needed` says whether the credentials provider assumes a role.
    """
    role = values.of(
        "role_arn",
        "role_session_name",
        "external_id",
        "aws_endpoint_url_sts",
        "web_identity_token_file",
    )
    may_lack_role = web_identity or role.keys() == {"aws_endpoint_url_sts"}
    if role and "role_arn" not in role and not may_lack_role:
        raise values.wrong(
            next(iter(role)), "says nothing without a role. Give 's3.role-arn', too."
        )
    if needed and "role_arn" not in role:
        raise values.wrong(
            "credentials_provider", "assumes a role. Give 'fs.s3a.assumed.role.arn', too."
        )
    has_no_other_login = not setup.config and not setup.profile
    if "web_identity_token_file" in role or (web_identity and has_no_other_login):
        if "external_id" in role:
            raise values.wrong("external_id", "has no meaning with a web identity.")
        setup.config |= role
    elif "role_arn" in role:
        setup.role = role


def _s3_encryption(values: StoreValues, setup: StoreSetup) -> None:
    """Sets how the store encrypts new files."""
    word = values.text("server_side_encryption")
    key = values.text("encryption_key")
    if word is None:
        if key is not None:
            raise values.wrong("encryption_key", "needs 's3.encryption.algorithm', too.")
        return
    kind = _ENCRYPTION.get(word.lower())
    if kind is None:
        raise values.unsupported(
            "server_side_encryption",
            "is none of SSE-S3, SSE-KMS, DSSE-KMS and SSE-C. Files are not encrypted here.",
        )
    setup.config["aws_server_side_encryption"] = kind
    if key is not None and kind == "AES256":
        raise values.wrong("encryption_key", "has no meaning with SSE-S3. Give SSE-KMS or SSE-C.")
    if kind == "sse-c" and key is None:
        raise values.wrong(
            "server_side_encryption", "needs the key in base64, 's3.encryption.key'."
        )
    if key is not None:
        name = "aws_sse_customer_key_base64" if kind == "sse-c" else "aws_sse_kms_key_id"
        setup.config[name] = key
    if values.has("sse_bucket_key_enabled"):
        setup.config["aws_sse_bucket_key_enabled"] = str(values.text("sse_bucket_key_enabled"))


def _classes(values: StoreValues, key: str, known: set[str]) -> set[str]:
    """The names of the Java classes in an option, without their packages. Raises
    `UnsupportedFeature` for an unknown class.
    """
    words = re.split(r"[\s,]+", values.text(key) or "")
    # The name of a nested class comes after a '$'.
    names = {re.split("[.$]", word)[-1] for word in words if word}
    if names - known:
        raise values.unsupported(
            key,
            "names a class of Java that is not known here. Give keys, a profile or a role.",
        )
    return names


def _gcs(values: StoreValues, setup: StoreSetup) -> None:
    word = (values.text("auth_type") or "APPLICATION_DEFAULT").upper()
    if word not in _LOGINS_OF_GCS:
        raise values.unsupported("auth_type", f"is none of {', '.join(sorted(_LOGINS_OF_GCS))}.")
    if word == "UNAUTHENTICATED" or values.switch("skip_signature"):
        setup.config["skip_signature"] = "true"
    setup.config |= values.of(
        "service_account", "service_account_key", "application_credentials", "bearer_token"
    )
    if values.has("service_account") and values.has("service_account_key"):
        raise values.wrong(
            "service_account", "is a file, and there is a key, too. Give one of them."
        )
    key = values.text("service_account_key")
    if key is not None:
        try:
            base = json.loads(key).get("gcs_base_url", "")
        except (ValueError, AttributeError, RecursionError):
            raise values.wrong(
                "service_account_key", "is not the JSON text of a service account."
            ) from None
        _check_tls(values, "service_account_key", str(base), setup)
    url = _url(values, "base_url", setup)
    if url is not None:
        setup.config["base_url"] = url


def _azure(place: StoreLocation, values: StoreValues, setup: StoreSetup) -> None:
    word = (values.text("auth_type") or "sas").lower()
    if word not in _LOGINS_OF_AZURE:
        raise values.unsupported(
            "auth_type", "is none of SharedKey, OAuth, SAS and WorkloadIdentity."
        )
    _classes(values, "oauth_provider", _TOKENS_OF_AZURE)  # raises for another class
    account = place.account or values.text("account_name")
    if account:
        setup.config["account_name"] = account
    setup.config |= values.of(
        "account_key",
        "token",
        "client_id",
        "client_secret",
        "tenant_id",
        "authority_host",
        "federated_token_file",
        "msi_endpoint",
        "object_id",
        "msi_resource_id",
        "encryption_key",
    )
    for key in ("account_key", "encryption_key"):
        try:
            base64.b64decode(values.text(key) or "", validate=True)
        except ValueError:
            raise values.wrong(key, "is not base64. Look for a missing character.") from None
    if values.has("sas_key"):
        setup.config["sas_key"] = (values.text("sas_key") or "").lstrip("?")
    token_url = _parts(values, "oauth_endpoint", values.text("oauth_endpoint"))
    if token_url.scheme:
        setup.config.setdefault("authority_host", f"{token_url.scheme}://{token_url.netloc}")
        setup.config.setdefault("tenant_id", token_url.path.strip("/").partition("/")[0])
    for switch in ("use_azure_cli", "skip_signature"):
        if values.switch(switch):
            setup.config[switch] = "true"
    url = _url(values, "endpoint", setup)
    if url is None and "." in place.host and not place.host.endswith(".core.windows.net"):
        url = f"https://{place.host.replace('.dfs.', '.blob.', 1)}"
    if url is not None:
        setup.config["endpoint"] = url
