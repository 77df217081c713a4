"""From the values of a store's options to obstore's configuration: what each kind of store
needs.
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


@dataclass(slots=True, repr=False)
class Rules:
    """What the rules make: fields of `StoreSettings`. `login` says whether the options name any
    credentials.
    """

    config: dict[str, str] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    profile: str | None = None
    role: dict[str, str] = field(default_factory=dict)
    login: bool = True


def apply_rules(
    place: StoreLocation, values: StoreValues, *, allow_http: bool, web_identity: bool = False
) -> Rules:
    """The configuration of the store. `web_identity` says whether the environment has a web
    identity. Raises `InvalidOption` and `UnsupportedFeature`.
    """
    made = Rules()
    _client(values, made)
    match place.kind:
        case "s3":
            _s3_endpoint(place, values, made, allow_http)
            _s3_login(values, made, web_identity)
            _url(values, "aws_endpoint_url_sts", made, allow_http=allow_http)
            _s3_encryption(values, made)
            made.config |= values.of("metadata_endpoint", "checksum_algorithm")
            for switch in ("imdsv1_fallback", "request_payer", "unsigned_payload"):
                if values.switch(switch):
                    made.config[switch] = "true"
        case "gcs":
            _gcs(values, made, allow_http)
        case _:
            _azure(place, values, made, allow_http)
    return made


def _client(values: StoreValues, made: Rules) -> None:
    made.client |= values.of("proxy_url", "proxy_excludes")
    if not values.has("proxy_url") and values.has("proxy_host"):
        user, password = values.text("proxy_user"), values.text("proxy_password")
        login = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
        scheme = "https" if values.switch("proxy_ssl") else "http"
        port = values.text("proxy_port") or ("443" if scheme == "https" else "80")
        if not port.isdigit():
            raise values.wrong("proxy_port", "is not the number of a port.")
        made.client["proxy_url"] = f"{scheme}://{login}{values.text('proxy_host')}:{port}"
    elif (
        values.has("proxy_url")
        and not _parts(values, "proxy_url", values.text("proxy_url")).hostname
    ):
        raise values.wrong("proxy_url", "is not a URL such as http://host:port.")
    trusted = values.text("root_certificate")
    if trusted is not None:
        if "-----BEGIN" not in trusted:
            try:
                trusted = Path(trusted).read_text()
            except (OSError, ValueError) as failed:
                why = f"cannot be read ({type(failed).__name__}). Give the PEM file of a CA, or its text."
                raise values.wrong("root_certificate", why) from None
        made.client["root_certificate"] = trusted


def _url(
    values: StoreValues, key: str, made: Rules, *, allow_http: bool, tls: bool = True
) -> str | None:
    """An endpoint with its scheme, without a slash at its end."""
    given = values.text(key)
    if given is None:
        return None
    url = (given if "://" in given else f"{'https' if tls else 'http'}://{given}").rstrip("/")
    parts = _parts(values, key, url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or "@" in parts.netloc
    ):
        raise values.wrong(key, "is not a URL such as https://host:port, without user and query.")
    _check_tls(values, key, url, made, allow_http=allow_http)
    return url


def _parts(values: StoreValues, key: str, url: str | None) -> SplitResult:
    try:
        return urlsplit(url or "")
    except ValueError:
        raise values.wrong(key, "is not a URL such as https://host:port.") from None


def _check_tls(values: StoreValues, key: str, url: str, made: Rules, *, allow_http: bool) -> None:
    if url.startswith("http://"):
        if not (allow_http or _is_loopback(_parts(values, key, url).hostname or "")):
            cure = "Give https://…, or set paimon-stream.store.allow-http to true."
            text = f"has no TLS: rows and tokens would go over the network in the clear. {cure}"
            raise values.wrong(key, text)
        made.client["allow_http"] = True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _s3_endpoint(place: StoreLocation, values: StoreValues, made: Rules, allow_http: bool) -> None:
    url = _url(
        values, "endpoint", made, allow_http=allow_http, tls=values.switch("ssl") is not False
    )
    region, path_style = values.text("region"), values.switch("path_style")
    if url == "https://s3.amazonaws.com":
        url = None  # Hadoop's word for AWS as a whole
    if place.scheme == "oss":
        if url is None:
            text = f"{place.shown} needs the storage option 'fs.oss.endpoint', such as oss-cn-hangzhou.aliyuncs.com."
            raise InvalidOption(text, option="fs.oss.endpoint", location=place.shown)
        url = re.sub(r"://(oss-)", r"://s3.\1", url)
        found = re.search(r"oss-([a-z0-9-]+?)(-internal)?\.aliyuncs\.com", url)
        region = region or (found[1] if found else None)
        path_style = bool(path_style)
        made.config["disable_bulk_delete"] = "true"
    if url is not None:
        found = re.search(r"://s3[.-](?:dualstack\.)?([a-z]+-[a-z-]+-\d)\.amazonaws\.com", url)
        region = region or (found[1] if found else "us-east-1")
        if path_style is False:
            url = (
                url
                if f"://{place.bucket}." in url
                else url.replace("://", f"://{place.bucket}.", 1)
            )
    elif region and region.startswith("cn-"):
        url = f"https://s3.{region}.amazonaws.com.cn"
    if path_style is False:
        made.config["virtual_hosted_style_request"] = "true"
    if region:
        made.config["region"] = region
    if url:
        made.config["endpoint"] = url


def _s3_login(values: StoreValues, made: Rules, web_identity: bool) -> None:
    classes = _classes(values, "credentials_provider", _CHAIN)
    if values.switch("skip_signature") or classes & _ANONYMOUS:
        made.config["skip_signature"] = "true"
        return
    keys = values.of("access_key_id", "secret_access_key", "session_token")
    if keys and not {"access_key_id", "secret_access_key"} <= keys.keys():
        raise values.wrong(
            next(iter(keys)), "is not enough: the key's id and the key belong together."
        )
    made.profile = values.text("profile")
    if keys and made.profile is not None:
        if not values.from_environment("profile"):
            raise values.wrong(
                "profile", "names a profile, and there is a key, too. Give one of them."
            )
        made.profile = None
    if "ProfileCredentialsProvider" in classes and not keys and made.profile is None:
        made.profile = "default"
    made.config |= keys
    _s3_role(values, made, web_identity, needed="AssumedRoleCredentialProvider" in classes)
    others = values.of(
        "container_credentials_relative_uri",
        "container_credentials_full_uri",
        "container_authorization_token_file",
    )
    made.config |= others
    made.login = bool(keys or made.profile or made.role or others) or values.has(
        "web_identity_token_file"
    )


def _s3_role(values: StoreValues, made: Rules, web_identity: bool, *, needed: bool) -> None:
    """The role to assume. obstore does it with a web identity, boto3 with any other credentials."""
    asked = values.of(
        "role_arn",
        "role_session_name",
        "external_id",
        "aws_endpoint_url_sts",
        "web_identity_token_file",
    )
    if (
        asked
        and "role_arn" not in asked
        and not (web_identity or asked.keys() == {"aws_endpoint_url_sts"})
    ):
        raise values.wrong(
            next(iter(asked)), "says nothing without a role. Give 's3.role-arn', too."
        )
    if needed and "role_arn" not in asked:
        raise values.wrong(
            "credentials_provider", "assumes a role. Give 'fs.s3a.assumed.role.arn', too."
        )
    if "web_identity_token_file" in asked or (
        web_identity and not made.config and not made.profile
    ):
        if "external_id" in asked:
            raise values.wrong("external_id", "has no meaning with a web identity.")
        made.config |= asked
    elif "role_arn" in asked:
        made.role = asked


def _s3_encryption(values: StoreValues, made: Rules) -> None:
    word, key = values.text("server_side_encryption"), values.text("encryption_key")
    if word is None:
        if key is not None:
            raise values.wrong("encryption_key", "needs 's3.encryption.algorithm', too.")
        return
    kind = _ENCRYPTION.get(word.lower())
    if kind is None:
        text = "is none of SSE-S3, SSE-KMS, DSSE-KMS and SSE-C. Files are not encrypted here."
        raise values.unsupported("server_side_encryption", text)
    made.config["aws_server_side_encryption"] = kind
    if key is not None and kind == "AES256":
        raise values.wrong("encryption_key", "has no meaning with SSE-S3. Give SSE-KMS or SSE-C.")
    if kind == "sse-c" and key is None:
        raise values.wrong(
            "server_side_encryption", "needs the key in base64, 's3.encryption.key'."
        )
    if key is not None:
        made.config["aws_sse_customer_key_base64" if kind == "sse-c" else "aws_sse_kms_key_id"] = (
            key
        )
    if values.has("sse_bucket_key_enabled"):
        made.config["aws_sse_bucket_key_enabled"] = str(values.text("sse_bucket_key_enabled"))


def _classes(values: StoreValues, key: str, known: set[str]) -> set[str]:
    """The names of Java classes without their packages. Raises `UnsupportedFeature` for an unknown
    one.
    """
    names = {
        re.split("[.$]", one)[-1] for one in re.split(r"[\s,]+", values.text(key) or "") if one
    }
    if names - known:
        text = "names a class of Java whose way is not known here. Give keys, a profile or a role."
        raise values.unsupported(key, text)
    return names


def _gcs(values: StoreValues, made: Rules, allow_http: bool) -> None:
    word = (values.text("auth_type") or "APPLICATION_DEFAULT").upper()
    if word not in _LOGINS_OF_GCS:
        raise values.unsupported("auth_type", f"is none of {', '.join(sorted(_LOGINS_OF_GCS))}.")
    if word == "UNAUTHENTICATED" or values.switch("skip_signature"):
        made.config["skip_signature"] = "true"
    made.config |= values.of(
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
        _check_tls(values, "service_account_key", str(base), made, allow_http=allow_http)
    url = _url(values, "base_url", made, allow_http=allow_http)
    if url is not None:
        made.config["base_url"] = url


def _azure(place: StoreLocation, values: StoreValues, made: Rules, allow_http: bool) -> None:
    word = (values.text("auth_type") or "sas").lower()
    if word not in _LOGINS_OF_AZURE:
        raise values.unsupported(
            "auth_type", "is none of SharedKey, OAuth, SAS and WorkloadIdentity."
        )
    _classes(values, "oauth_provider", _TOKENS_OF_AZURE)
    account = place.account or values.text("account_name")
    if account:
        made.config["account_name"] = account
    made.config |= values.of(
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
        made.config["sas_key"] = (values.text("sas_key") or "").lstrip("?")
    asked = _parts(values, "oauth_endpoint", values.text("oauth_endpoint"))
    if asked.scheme:
        made.config.setdefault("authority_host", f"{asked.scheme}://{asked.netloc}")
        made.config.setdefault("tenant_id", asked.path.strip("/").partition("/")[0])
    for switch in ("use_azure_cli", "skip_signature"):
        if values.switch(switch):
            made.config[switch] = "true"
    url = _url(values, "endpoint", made, allow_http=allow_http)
    if url is None and "." in place.host and not place.host.endswith(".core.windows.net"):
        url = f"https://{place.host.replace('.dfs.', '.blob.', 1)}"
    if url is not None:
        made.config["endpoint"] = url
