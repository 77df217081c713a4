"""Renders `docs/stores.md` from the declared storage options.

python -m docs.generators.stores > docs/stores.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from docs.generators.options import cells, rows
from paimon_stream.options import store_options
from paimon_stream.options.store_options import REFUSED, STORE_OPTIONS, StoreOption

__all__ = ["render"]

_START: Final = """\
# Object stores

<!-- Generated: python -m docs.generators.stores > docs/stores.md -->

    pip install '.[store]'        # obstore, for S3, Google Cloud Storage and Azure
    pip install '.[store,aws]'    # and boto3, for profiles of ~/.aws, SSO and assumed roles

```python
PaimonSink("s3://bucket/warehouse/shop.db/orders", storage_options={"s3.region": "eu-west-1"})
PaimonTable.load("gs://bucket/warehouse/shop.db/orders")
```

## Locations

| location | store |
| --- | --- |
| `s3://bucket/path`, also `s3a` and `s3n` | S3, and stores that speak its language |
| `gs://bucket/path`, also `gcs` | Google Cloud Storage |
| `abfss://container@account.dfs.core.windows.net/path`, also `abfs` and `wasbs` | Azure |
| `az://container/path` | Azure, with the account among the options |
| `oss://bucket/path` | Alibaba's OSS by its S3 endpoint. Not tested. It needs `fs.oss.endpoint` |

- A location keeps its scheme as you write it. Java and others find the same table under another scheme,
  because a table holds no absolute paths.
- Keys are as they are written. Nothing is percent-decoded, and empty parts between slashes count as
  nothing. A key has at most 1,024 bytes, with the names that a table adds.
- A bucket alone is refused, and so are a user, a password, a port, a query and `#`.
- `hdfs://`, `viewfs://` and other schemes are refused.

## Where options come from

Of each option, the first value counts that is given, in this order:

1. `storage_options` of `PaimonSink`, `PaimonTable` and the commands' `--storage-option`,
2. Spark's own configuration, `spark.hadoop.fs.s3a.*`, `fs.azure.*`, `fs.gs.*`, in a process with a Spark
   session,
3. the environment of the driver,
4. on AWS, the default profile in `~/.aws/credentials`, unless the pod or task has an identity,
5. what the machine gives: a pod's or task's identity, or the machine's role. Each executor asks its own.

Credentials are taken from one source only: the first that has any. So a key among the storage options is
never mixed with a token of the environment.

Case does not matter in names, `-`, `_` and `.` are one character, and so are the prefixes of a store:
`s3.access-key`, `s3a.access.key`, `fs.s3a.access.key` and `AWS_ACCESS_KEY` are one name. Hadoop's names
for one bucket (`fs.s3a.bucket.<bucket>.…`) or one account (`fs.azure.….<account>.dfs.core.windows.net`)
come before its general ones. If several names of one option are given, the one that stands first in the
tables below counts.

A storage option with an unknown name is refused, and the nearest name is suggested. In Spark's
configuration and in the environment, names that are not listed here are passed over, except for those
that ask for something that is [not supported](#what-is-refused). `paimon-stream.store.from-spark = false`
passes over all of Spark's.

On Spark Connect, the session's settings are read as far as the server shows them.

## Credentials

- **Keys and tokens** reach executors in the pickled storage of a task, and nowhere else. They never
  appear in a log, an error, a `repr`, a plan, a Spark property, a table or a checkpoint. A table's own
  options are no place for them: they are refused there, because every reader of the folder would see
  them. If another program stored some, each stream warns.
- **What ends must be renewed.** A session token, a bearer token or a signature that is given as an option
  ends one day, and with it the stream. Profiles, roles, web identities, service accounts and machine
  identities are renewed for as long as a stream runs.
- **AWS profiles** (`aws.profile`, `AWS_PROFILE`) are boto3's affair: SSO, `credential_process`, roles.
  The profile must be on every executor. The keys of a profile are read anew every few minutes, so a
  program may renew them in the file.
- **Roles of AWS**: `s3.role-arn` with a web identity needs no boto3; with a key or a profile it does.
- **Command line**: other users of a machine can see a command line. Give `--storage-option
  s3.secret-key=@FILE`, or use the environment or a profile.
- **Without TLS**, an endpoint is accepted on the machine itself only. `paimon-stream.store.allow-http =
  true` accepts it elsewhere. `root_certificate` and `AWS_CA_BUNDLE` name the CA of a store of your own
  (with obstore before 0.11 only the variable `SSL_CERT_FILE` does, on each machine); `HTTPS_PROXY` and
  `proxy_url` name a proxy.
- **The region** of a bucket at AWS is asked of AWS, once in each process, if nothing names it.
- **A checkpoint** on a store is read with the same options, as far as they are for its kind of store. If
  it cannot be read, the sink uses the table alone.

## Beside Java Paimon

Java reads tables in stores that are written here, and the other way round. On S3 and Google Cloud
Storage, Java without a catalog's lock looks whether a snapshot exists and then copies one there. In
between it can replace a snapshot that was committed here, and those rows are gone. Let only one of the
two commit to such a table.

## What a batch costs

A batch sends 25 to 35 requests, most of them one after another. At 25 ms a request that is close to a
second. Data files are sent by the tasks, one request for a file of up to 8 MiB, and in parts of 8 MiB above
that.

A task that is killed leaves the parts of a file that it had not completed, and so does a refused one with
obstore before 0.12. No listing shows them, and they cost money. Give the bucket a rule that removes
unfinished uploads after a day (`AbortIncompleteMultipartUpload`). Azure removes them itself after a week.

## Options of this package

They are sink options, too. `timeout`, `connect_timeout`, `max_retries` and `allow_http` mean the same.
"""

_TITLES: Final = {"s3": "S3 and OSS", "gcs": "Google Cloud Storage", "azure": "Azure"}

_REFUSED: Final = """\

## What is refused

These names are known, and refused, because what they ask for would not be done. Names are in their
shortest form.
"""


def render() -> str:
    """The whole page, in Markdown."""
    parts = [_START, rows(("Option", "Default", "What it does"), map(cells, store_options()))]
    for kind, options in STORE_OPTIONS.items():
        parts.append(f"\n## Options for {_TITLES[kind]}\n")
        parts.append(rows(("Option", "Other names", "Environment", "What it is"), map(_cells, options)))
    parts.append(_REFUSED)
    parts.append(rows(("Store", "Names", "What to do"), _refused()))
    return "".join(parts)


def _cells(option: StoreOption) -> tuple[str, ...]:
    first, *others = option.names
    other = [*others, *(f"{name} (the opposite)" for name in option.inverse)]
    secret = " Secret." if option.secret else ""
    return _listed([first]), _listed(other), _listed(option.environment), option.doc + secret


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`".replace(" (the opposite)`", "` (the opposite)") for name in names) or "–"


def _refused() -> Iterator[tuple[str, ...]]:
    for kind, names in REFUSED.items():
        for cure in dict.fromkeys(names.values()):
            yield _TITLES[kind], _listed([name for name, one in names.items() if one == cure]), f"{cure}."


if __name__ == "__main__":
    sys.stdout.write(render())
