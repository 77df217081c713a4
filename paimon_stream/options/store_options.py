"""Declares the storage options of object stores, each of them once: its names, what it sets, and
whether it is secret. The first name of an option is the one that `docs/stores.md` recommends; its
other names are used by Paimon, Hadoop, delta-rs and pyiceberg. Some names differ only in case, in
`-`, `_` and `.`, or in the prefix of their store. Only one of such names is listed (`store_names`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOption:
    """One storage option.

    Attributes:
        key: the key of obstore, or a word of this package that is replaced by such keys.
        names: the names of the option, the recommended name first.
        doc: what the option sets.
        environment: environment variables that also set the option. They are read on the driver.
        inverse: names that mean the opposite of the option.
        switch: whether the value must be true or false.
        secret: whether the value must not be shown in any message.
        login: whether the option is a part of a login. All parts must come from one source, because
            a key of one source does not fit a token of another.
    """

    key: str
    names: tuple[str, ...]
    doc: str
    environment: tuple[str, ...] = ()
    inverse: tuple[str, ...] = ()
    switch: bool = False
    secret: bool = False
    login: bool = False


def _option(
    key: str,
    doc: str,
    *names: str,
    environment: tuple[str, ...] = (),
    inverse: tuple[str, ...] = (),
    switch: bool = False,
    secret: bool = False,
    login: bool = False,
) -> StoreOption:
    return StoreOption(
        key=key,
        names=names,
        doc=doc,
        environment=environment,
        inverse=inverse,
        switch=switch,
        secret=secret,
        login=login,
    )


_COMMON: Final = (
    _option(
        "proxy_url",
        "An HTTP proxy, `http://[user:password@]host:port`.",
        "proxy_url",
        "s3.proxy-uri",
        secret=True,
    ),
    _option("proxy_excludes", "Hosts that are reached without the proxy.", "proxy_excludes"),
    _option(
        "root_certificate",
        "A CA to trust beside those of the system: a file of the driver, or PEM text.",
        "root_certificate",
        "ca_bundle",
        environment=("AWS_CA_BUNDLE",),
    ),
)

_S3: Final = (
    _option(
        "endpoint",
        "Where the store is, if not at AWS. Without a scheme it is https.",
        "s3.endpoint",
        "fs.s3a.endpoint",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        environment=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ),
    _option(
        "region",
        "The bucket's region. If not set, AWS is asked for it.",
        "s3.endpoint.region",
        "s3.region",
        "AWS_DEFAULT_REGION",
        "client.region",
        environment=("AWS_REGION", "AWS_DEFAULT_REGION"),
    ),
    _option(
        "access_key_id",
        "The key's id.",
        "s3.access-key",
        "s3.access-key-id",
        "fs.s3.accessKeyId",
        "client.access-key-id",
        environment=("AWS_ACCESS_KEY_ID",),
        secret=True,
        login=True,
    ),
    _option(
        "secret_access_key",
        "The key.",
        "s3.secret-key",
        "s3.secret-access-key",
        "fs.s3.accessKeySecret",
        "client.secret-access-key",
        environment=("AWS_SECRET_ACCESS_KEY",),
        secret=True,
        login=True,
    ),
    _option(
        "session_token",
        "The token of a temporary key.",
        "s3.session.token",
        "fs.s3.securityToken",
        "AWS_TOKEN",
        "client.session-token",
        environment=("AWS_SESSION_TOKEN", "AWS_TOKEN"),
        secret=True,
        login=True,
    ),
    _option(
        "profile",
        "A profile of `~/.aws`, with all that boto3 knows: SSO, roles, processes. Needs the extra "
        "`aws`, and the files on every executor.",
        "aws.profile",
        "client.profile-name",
        environment=("AWS_PROFILE",),
        login=True,
    ),
    _option(
        "role_arn",
        "A role to assume: with a web identity, or with the key or profile that is given, which "
        "needs the extra `aws`.",
        "s3.role-arn",
        "fs.s3a.assumed.role.arn",
        "client.role-arn",
        login=True,
    ),
    _option(
        "role_session_name",
        "The name of the assumed role's session.",
        "s3.role-session-name",
        "fs.s3a.assumed.role.session.name",
        "client.role-session-name",
        login=True,
    ),
    _option(
        "external_id",
        "The external id of the assumed role.",
        "fs.s3a.assumed.role.external.id",
        login=True,
    ),
    _option(
        "aws_endpoint_url_sts",
        "Where roles are assumed.",
        "fs.s3a.assumed.role.sts.endpoint",
        "AWS_ENDPOINT_URL_STS",
        "AWS_STS_ENDPOINT",
        login=True,
    ),
    _option(
        "web_identity_token_file",
        "A web identity: a file of every executor.",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        login=True,
    ),
    _option(
        "container_credentials_relative_uri",
        "The credentials of an ECS task.",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        login=True,
    ),
    _option(
        "container_credentials_full_uri",
        "The credentials of an EKS pod.",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        login=True,
    ),
    _option(
        "container_authorization_token_file",
        "The token of an EKS pod: a file of every executor.",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        login=True,
    ),
    _option("metadata_endpoint", "Where the machine's role is asked for.", "AWS_METADATA_ENDPOINT"),
    _option("imdsv1_fallback", "Also ask with IMDSv1.", "AWS_IMDSV1_FALLBACK", switch=True),
    _option(
        "credentials_provider",
        "Hadoop's list of classes. Those whose way is known here are accepted.",
        "fs.s3a.aws.credentials.provider",
        login=True,
    ),
    _option(
        "skip_signature",
        "Send no credentials.",
        "s3.anonymous",
        "AWS_SKIP_SIGNATURE",
        switch=True,
        login=True,
        environment=("AWS_SKIP_SIGNATURE",),
    ),
    _option(
        "path_style",
        "The bucket is in the path of a request, not in its host. Default: true if there is an endpoint.",
        "s3.path.style.access",
        switch=True,
        inverse=("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "s3.force-virtual-addressing"),
    ),
    _option(
        "ssl",
        "Whether an endpoint without a scheme is https.",
        "s3.connection.ssl.enabled",
        switch=True,
    ),
    _option(
        "server_side_encryption",
        "`SSE-S3`, `SSE-KMS`, `DSSE-KMS` or `SSE-C`, or AWS's words for them.",
        "s3.encryption.algorithm",
        "fs.s3a.server-side-encryption-algorithm",
        "AWS_SERVER_SIDE_ENCRYPTION",
        environment=("AWS_SERVER_SIDE_ENCRYPTION",),
    ),
    _option(
        "encryption_key",
        "The key's name in KMS, or the key itself in base64 for SSE-C.",
        "s3.encryption.key",
        "fs.s3a.server-side-encryption.key",
        "AWS_SSE_KMS_KEY_ID",
        "AWS_SSE_CUSTOMER_KEY_BASE64",
        environment=("AWS_SSE_KMS_KEY_ID", "AWS_SSE_CUSTOMER_KEY_BASE64"),
        secret=True,
    ),
    _option(
        "sse_bucket_key_enabled",
        "Use the bucket's key with KMS.",
        "AWS_SSE_BUCKET_KEY_ENABLED",
        switch=True,
    ),
    _option(
        "request_payer",
        "Whoever asks pays.",
        "s3.requester.pays.enabled",
        "AWS_REQUEST_PAYER",
        switch=True,
    ),
    _option("checksum_algorithm", "A checksum of each upload, `SHA256`.", "AWS_CHECKSUM_ALGORITHM"),
    _option("unsigned_payload", "Do not sign the content.", "AWS_UNSIGNED_PAYLOAD", switch=True),
    _option("proxy_host", "The host of an HTTP proxy.", "fs.s3a.proxy.host"),
    _option("proxy_port", "Its port.", "fs.s3a.proxy.port"),
    _option("proxy_user", "Its user.", "fs.s3a.proxy.username"),
    _option("proxy_password", "Its password.", "fs.s3a.proxy.password", secret=True),
    _option(
        "proxy_ssl", "Whether the proxy itself is https.", "fs.s3a.proxy.ssl.enabled", switch=True
    ),
)

_GCS: Final = (
    _option(
        "service_account",
        "The service account's JSON file, on every executor.",
        "gs.auth.service.account.json.keyfile",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        login=True,
    ),
    _option(
        "service_account_key",
        "The content of such a file.",
        "gs.service-account-key",
        environment=("GOOGLE_SERVICE_ACCOUNT_KEY",),
        secret=True,
        login=True,
    ),
    _option(
        "application_credentials",
        "The file of the application's default credentials, on every executor.",
        "GOOGLE_APPLICATION_CREDENTIALS",
        login=True,
    ),
    _option(
        "bearer_token",
        "A token, which ends without being renewed.",
        "gcs.oauth2.token",
        "GOOGLE_BEARER_TOKEN",
        environment=("GOOGLE_BEARER_TOKEN",),
        secret=True,
        login=True,
    ),
    _option("auth_type", "Hadoop's word for the kind of login.", "fs.gs.auth.type", login=True),
    _option(
        "skip_signature",
        "Send no credentials. This is for reading only.",
        "gcs.anonymous",
        "GOOGLE_SKIP_SIGNATURE",
        switch=True,
        login=True,
    ),
    _option(
        "base_url",
        "Where the store is, if not at Google.",
        "gs.endpoint",
        "fs.gs.storage.root.url",
        "gcs.service.host",
        "GOOGLE_BASE_URL",
        environment=("GOOGLE_BASE_URL",),
    ),
)

_AZURE: Final = (
    _option(
        "account_name",
        "The storage account, if the location does not name it.",
        "azure.account-name",
        environment=("AZURE_STORAGE_ACCOUNT_NAME",),
    ),
    _option(
        "account_key",
        "The account's key.",
        "azure.account.key",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        environment=(
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
        ),
        secret=True,
        login=True,
    ),
    _option(
        "sas_key",
        "A shared access signature.",
        "azure.sas-token",
        "fs.azure.sas.fixed.token",
        "AZURE_STORAGE_SAS_KEY",
        "fs.azure.sas",
        environment=("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
        secret=True,
        login=True,
    ),
    _option(
        "token",
        "A bearer token, which ends without being renewed.",
        "AZURE_STORAGE_TOKEN",
        environment=("AZURE_STORAGE_TOKEN",),
        secret=True,
        login=True,
    ),
    _option(
        "client_id",
        "The application's id.",
        "azure.client-id",
        "fs.azure.account.oauth2.client.id",
        environment=("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
        secret=True,
        login=True,
    ),
    _option(
        "client_secret",
        "The application's secret.",
        "azure.client-secret",
        "fs.azure.account.oauth2.client.secret",
        environment=("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
        secret=True,
        login=True,
    ),
    _option(
        "tenant_id",
        "The application's tenant.",
        "azure.tenant-id",
        "AZURE_AUTHORITY_ID",
        "fs.azure.account.oauth2.msi.tenant",
        environment=(
            "AZURE_STORAGE_TENANT_ID",
            "AZURE_TENANT_ID",
            "AZURE_STORAGE_AUTHORITY_ID",
            "AZURE_AUTHORITY_ID",
        ),
        login=True,
    ),
    _option(
        "oauth_endpoint",
        "`https://<authority>/<tenant>/oauth2/token`: stands for the tenant and its host.",
        "fs.azure.account.oauth2.client.endpoint",
        login=True,
    ),
    _option("authority_host", "Where tokens are asked for.", "AZURE_AUTHORITY_HOST", login=True),
    _option(
        "federated_token_file",
        "A workload identity: a file of every executor.",
        "AZURE_FEDERATED_TOKEN_FILE",
        "fs.azure.account.oauth2.token.file",
        login=True,
    ),
    _option(
        "msi_endpoint",
        "Where the machine's identity is asked for.",
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
        "fs.azure.account.oauth2.msi.endpoint",
        login=True,
    ),
    _option("object_id", "The managed identity's object id.", "AZURE_OBJECT_ID", login=True),
    _option(
        "msi_resource_id",
        "The managed identity's resource id.",
        "AZURE_MSI_RESOURCE_ID",
        login=True,
    ),
    _option(
        "use_azure_cli",
        "Ask the program `az` for tokens.",
        "AZURE_USE_AZURE_CLI",
        switch=True,
        login=True,
    ),
    _option(
        "auth_type",
        "Hadoop's word for the kind of login.",
        "fs.azure.account.auth.type",
        login=True,
    ),
    _option(
        "oauth_provider",
        "Hadoop's class for tokens. Those whose way is known here are accepted.",
        "fs.azure.account.oauth.provider.type",
        login=True,
    ),
    _option(
        "skip_signature",
        "Send no credentials.",
        "azure.anonymous",
        "AZURE_SKIP_SIGNATURE",
        switch=True,
        login=True,
    ),
    _option(
        "endpoint",
        "Where the store is, if the location does not say it, with the account in it.",
        "azure.endpoint",
        "AZURE_STORAGE_ENDPOINT",
        environment=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ),
    _option(
        "encryption_key",
        "A key of your own, in base64, by which the store encrypts.",
        "fs.azure.encryption.encoded.client-provided-key",
        "AZURE_ENCRYPTION_KEY",
        secret=True,
    ),
)

STORE_OPTIONS: Final[Mapping[str, tuple[StoreOption, ...]]] = {
    "s3": (*_S3, *_COMMON),
    "gcs": (*_GCS, *_COMMON),
    "azure": (*_AZURE, *_COMMON),
}
"""All storage options by the kind of store."""

PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("fs.s3a.", "fs.s3n.", "fs.s3.", "fs.oss.", "s3a.", "s3n.", "s3.", "oss.", "aws."),
    "gcs": ("fs.gs.", "google.cloud.", "google.", "gcs.", "gs."),
    "azure": ("fs.azure.", "azure.storage.", "azure.", "adls."),
}
"""How folded names begin, by the kind of store. A longer beginning comes before a shorter one."""

_TRUST: Final = "Nobody can then tell the store from a stranger. Trust its CA by 'root_certificate'"
_ADVICE: Final = {
    "s3": {
        _TRUST: "allow.invalid.certificates",
        "Each commit is a put that the store refuses if the snapshot is there; no lock is needed": (
            "conditional.put copy.if.not.exists s3.allow.unsafe.rename s3.locking.provider"
        ),
        "Requests are signed with AWS Signature Version 4 only": (
            "custom.signers signing.algorithm s3.signing.algorithm signer signer.type signer.uri signer.endpoint "
            "remote.signing.enabled"
        ),
        "Give the alias of the access point as the bucket": "accesspoint.arn access.points",
        "Give keys, a profile or a role": "delegation.token.binding security.credential.provider.path",
        "Directory buckets list their files in no order": "s3.express",
    },
    "gcs": {
        _TRUST: "allow.invalid.certificates",
        "Give 'gs.service-account-key' or 'gcs.oauth2.token'": (
            "auth.access.token.provider auth.access.token.provider.impl"
        ),
        "Give 'gs.service-account-key', the JSON text": (
            "auth.service.account.email auth.service.account.private.key auth.service.account.private.key.id "
            "auth.service.account.keyfile"
        ),
        "Keys of your own are not supported on Google Cloud Storage": "encryption.algorithm encryption.key",
    },
    "azure": {
        _TRUST: "allow.invalid.certificates",
        "Give its parts 'azure.account-name' and 'azure.account.key'": "connection.string",
        "Give the signature itself as 'azure.sas-token'": "sas.token.provider.type",
        "Give the key itself as 'azure.account.key'": "account.keyprovider",
        "Give the emulator's 'azure.endpoint', 'azure.account-name' and 'azure.account.key'": "use.emulator",
        "Give the location abfss://<workspace>@onelake.dfs.fabric.microsoft.com/…": "use.fabric.endpoint",
        "Give the key itself, 'fs.azure.encryption.encoded.client-provided-key'": "encryption.context.provider.type",
    },
}
REFUSED: Final = {
    kind: {name: advice for advice, names in names_of.items() for name in names.split()}
    for kind, names_of in _ADVICE.items()
}
"""Folded names that are known and refused, by the kind of store: what to do instead."""
