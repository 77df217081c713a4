"""Renders `docs/stores.md` from the declared storage options.

python -m docs.generators.stores > docs/stores.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Final

from docs.generators.options import cells, rows
from paimon_stream.options import store_options
from paimon_stream.options.store_options import REFUSED, STORE_OPTIONS, StoreOption

__all__ = ["render"]

_START: Final = """\
# Object stores and HDFS

<!-- Generated: python -m docs.generators.stores > docs/stores.md -->

    pip install '.[store]'        # obstore, for S3, Google Cloud Storage and Azure
    pip install '.[store,aws]'    # and boto3, for profiles of ~/.aws, SSO and assumed roles
    pip install '.[hdfs]'         # hdfs-native, for HDFS

<!-- not run: needs a cloud store -->
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
  because a table holds no absolute paths but external ones.
- Data files may lie in [external paths](operations.md#external-paths), in the same store or in others.
- Keys are as they are written. Nothing is percent-decoded, and empty parts between slashes count as
  nothing. A key has at most 1,024 bytes, with the names that a table adds.
- A bucket alone is refused, and so are a user, a password, a port, a query and `#`.
- `hdfs://` and `viewfs://` are [HDFS](#hdfs). Other schemes are refused.

## Where options come from

Of each option, the first value counts that is given, in this order:

1. `storage_options` of `PaimonSink`, `PaimonTable` and the commands' `--storage-option`,
2. Spark's own configuration, `spark.hadoop.fs.s3a.*`, `fs.azure.*`, `fs.gs.*`, in a process with a Spark
   session,
3. the environment of the driver,
4. on AWS, the default profile in `~/.aws/credentials`, unless the pod or task has an identity,
5. what the machine gives: a pod's or task's identity, or the machine's role. Each executor asks its own.

All credentials come from one source: the first that has any. So a key among the storage options is
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
  The profile must be on every executor. The keys of a profile are read anew every few minutes, and
  when the store no longer accepts them, so a program may renew them in the file.
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
- **On a cluster**, [clusters.md](clusters.md) says what executors need.

## Beside Java Paimon

Java reads tables in stores that are written here, and the other way round. If both *commit* to one table, the
store decides. Commits here create a snapshot on the condition that its name is free, so they never replace
one of Java's. Java looks whether the name is free, and then copies or renames its snapshot to it. Where the
store does not refuse the copy, it may replace a snapshot that was committed here in between. That takes
Java some 20 to 200 ms, and longer on a busy machine.

{beside}

A job of Java's that only compacts or expires commits as well: the same row holds. The row of S3 without a
lock was seen on the wire: Java 1.4.2 was held before its copy, our snapshot was published and reported, and
the copy replaced it. The other rows follow from how the stores and Java's file systems are documented.

What is done about it, where a row is one-way:

- **At the start** a stream looks at the last 20 snapshots. If another engine made one within seven days, it
  warns. `paimon-stream.commit.guard` = `strict` refuses the table instead (`UnsupportedTable`), and `trust`
  says nothing. Whether an Azure account has a hierarchical namespace, or which release of Java writes to
  OSS, cannot be seen, so the warning comes there, too. A batch write looks at the newest
  snapshot only. A table that nobody else writes costs one round trip and no word.
- **At each batch** the stream compares its last snapshot with the one that stands there. If it was replaced,
  it stops with `CommitLost`, which names the batch, its rows and files, who replaced it, and a command. A
  restart finds the same from its journal. Where we had already built on our snapshot, Java's rows are the
  ones that are missing, and Java does not say so.
- **The command**, `paimon-stream recommit`, commits the same files again, once, after a dry run; then the
  stream goes on. See [operations.md](operations.md#a-commit-was-replaced-by-another-engine).
- **The cure** is a common lock, or one committer. Name the table by its [JDBC catalog](catalogs.md#a-jdbc-catalog) or
  [Hive catalog](catalogs.md#a-hive-metastore) here and in Java: both then take the catalog's lock, and no warning comes. Or let
  Java only read, or let it write to a table of its own.

With the lock of a JDBC catalog it was seen on the wire, too: while Java 1.4.2 was held before its copy, our commit
waited for the lock, and while our put was held, Java waited. A commit of Java's that does not go through the catalog
takes no lock, and may replace a snapshot as before.

## When a store fails

- A request that fails is repeated. A store that is down costs time only, for up to
  `paimon-stream.store.max-outage`, if it has done anything for the job before. The log says so when the wait
  begins, each minute, and when the store answers again. If the store has done nothing for the job yet, the
  error comes within seconds, because the endpoint may be wrong.
- The put that publishes a snapshot is repeated by the commit, which looks at the store before it believes
  any answer. So lost answers, late puts, 409 without a cause, and 503 lose nothing and double nothing.
- Before its first commit to a bucket, each process tests whether the store creates files atomically. A store
  or a proxy that ignores the condition is refused (`NotAtomic`).

## What a batch costs

A batch takes four round trips, because requests that do not depend on each other are in flight together.
At 25 ms a request that is a tenth of a second. It does not grow with the table or its snapshots.

| trip | requests |
| --- | --- |
| 1 | GET the last snapshot and the table's schema; HEAD the next ones and the run's claim |
| 2 | PUT the journal's entry, the manifest, its lists, and data files that the driver writes |
| 3 | PUT the snapshot, on the condition that there is none |
| 4 | GET it, the one before and the schema; HEAD the next; PUT LATEST; DELETE an old journal entry |

- That is 17 requests, and one more for each data file. If tasks write the batch, their files are sent
  between trips 1 and 2, one request for a file of up to 8 MiB, and parts of 8 MiB above that. If writing took
  longer than a second, the table is looked at once more before trip 2.
- The first batch of a run is judged in eight trips at most, and committed in four to seven. A trip is added if the
  table's schema has changed since its creation; after batches without rows, because the sink may have had another
  name; and two beside other sinks of its query.
- A batch after another writer's commit takes up to thirteen, and a lost race three or more again.
- Expiry runs beside the batches, unless the table sets `snapshot.expire.execution-mode`. After a commit it
  looks into the store only if the oldest snapshot may be due, and at one of 16 such commits.
- `report.trips`, `report.requests` and `sink.metrics()` show what was sent. `benchmarks/stores.py` measures
  it.

A task that is killed leaves the parts of a file that it had not completed, and so does a refused one with
obstore before 0.12. No listing shows them, and they cost money. Give the bucket a rule that removes
unfinished uploads after a day (`AbortIncompleteMultipartUpload`). Azure removes them itself after a week.

## What a month costs

By AWS's list prices of 2026 for S3 standard ($5 for a million PUT and LIST requests, $0.40 for GET and HEAD,
nothing for DELETE), a batch with one data file costs 0.004 cents: 7 PUTs and 10 or 11 others. At one batch
a minute that is about $1.70 a month for a table, at one in ten seconds $10. Where many snapshots expire at
once, each adds 1 PUT, 5 GETs and 1 LIST: 53 cents a month at one batch a minute. Listing a million files for
orphans or `verify` costs half a cent.

Deletions go in requests of up to 1,000 files on S3, and 32 at a time elsewhere. Listings are read in pages of
1,000 files, for several partitions or buckets at once.

## Side by side

`benchmarks/stores.py --only peers --batches 8`: each system writes a file of 100 rows and commits it, on one
S3 server (moto) behind a proxy that delays each request by 25 ms. The machine had two cores and was busy.
Milliseconds of a batch with its file, and requests of a batch:

{peers}

`benchmarks/stores.py --only upkeep --snapshots 200 --files 10000`: the same code, one request after another,
and as it is. Seconds at 25 ms a request, and in brackets without the delay. Server, proxy and client are
Python, so they take more of "as it is" than a store would. Expiry one by one was measured on 50 snapshots,
deletion on 200 files. Expiry removes snapshots one after the other, because it looks for a rollback and for
tags before each. That is one round trip a snapshot. Most of the rest goes together.

{upkeep}

That server looks at all of its objects for each page of a listing, so a larger table would measure the server.
`benchmarks/large_upkeep.py` has a store that only reads and keeps its keys sorted, and a table of 100,000 files and
1,000 snapshots. The trips, which are requests in a row, do not depend on the machine. They are the time that a
store's delay takes. The seconds are from two quiet cores; in brackets without the delay.

{large}

With the delay, the client took 7.6 s of CPU for orphans and 13 s for `verify`, 4.7 and 10 s without. Merging
manifests copies their blocks, so these 1,034 manifests have 1.8 million entries. Equal blocks are decoded once.

## Rights

A stream, its maintenance and the commands need these rights and no others. Each right is tried by a test that
runs all of them and compares the requests that were sent.

{rights}

On S3, as a policy for one warehouse. Without the right to list, S3 answers 403 for a missing file, not 404,
and that check has no prefix; hence `IfExists`.

```json
{policy}
```

With a key of KMS, `kms:GenerateDataKey` and `kms:Decrypt` for it, too. A reader needs the rights to get and
to list only. On Google Cloud Storage the role Storage Object User (`roles/storage.objectUser`) has these
rights. On Azure it is Storage Blob Data Contributor, given for the container.

## Rules of a bucket

- **A rule that removes unfinished uploads after a day does no harm**, and saves money (see above).
- **No rule may delete or archive a table's files by their age.** Old data files are as much a part of the
  table as new ones. A rule for the prefix of a whole warehouse does that, too. Expiry and
  `remove_orphan_files` delete what the table no longer needs.
- Rules that move old files to a class that is read at once (S3 Standard-IA, Glacier Instant Retrieval,
  Intelligent-Tiering without its archives) do no harm. Small files and metadata cost more there than they
  save.
- **Versioned buckets** work. There a deletion only hides a file, and hints are replaced with each batch, so
  let a rule remove versions that are not current, after the days for which you want to restore. To restore
  a table, restore all of its files to one moment, with all writers stopped.
- **Locks on objects** (retention, legal hold, immutable blobs) keep files from being deleted. Streams
  go on, because no file but a hint is replaced; expiry reports what it could not delete.

## Options of this package

They are sink options, too. `timeout`, `connect_timeout`, `max_retries` and `allow_http` mean the same.
"""

_HDFS: Final = """
## HDFS

<!-- not run: needs HDFS -->
```python
PaimonSink("hdfs://nameservice1/warehouse/shop.db/orders")
PaimonTable.load("hdfs://host:8020/warehouse/shop.db/orders")
PaimonTable.load("viewfs://cluster/warehouse/shop.db/orders")
```

HDFS gives every guarantee that a local disk gives. The library is hdfs-native 0.14.7 or later, which needs no JVM
and no files of Hadoop on executors. A location names a name service, a name node with its port, or nothing
(`hdfs:///path`), which is `fs.defaultFS`. A path of `viewfs://` is looked up in its mount table when the table is
opened, and must lie in one mount of HDFS.

**Java Paimon may commit beside it.** Both write a snapshot to a temporary file and rename it without
overwriting. The name node does that in one step and refuses the second, so no lock is needed, and no stream warns.

**Configuration** comes from these sources. Of each name, the first value counts:

1. `storage_options`, under Hadoop's names, or Java Paimon's with `hadoop.` before them,
2. Spark's Hadoop configuration (`spark.hadoop.*`), unless `paimon-stream.store.from-spark = false`,
3. `core-site.xml` and `hdfs-site.xml` in `HADOOP_CONF_DIR`, or else in `HADOOP_HOME/etc/hadoop`, on the driver.

The driver reads them. They reach executors inside the tasks. A storage option with a name that is not in this
table is refused; elsewhere other names are passed over.

{hadoop}

The timeouts, `max-outage` and `from-spark` of [this package](#options-of-this-package) hold for HDFS, too.

**Checkpoints.** Spark resolves a checkpoint without a scheme, such as `/checkpoints/orders`, against `fs.defaultFS`. So do the sink,
the doctor and the commands: by Spark's configuration where a session is known, else by the storage options or the files of source 3.
A relative path on HDFS is not read: give the whole location. A path that a stream has recorded in the table is local if it has no
scheme: Spark was given `file:`.

**Who you are.** Without Kerberos it is `HADOOP_USER_NAME`, or else the user of the process, on each machine. With
`hadoop.security.authentication = kerberos` each process uses its ticket cache, or the principal and the keytab of
the options above, which must be on each machine. `PermissionDenied` names the user whom the name node has seen.

**When HDFS fails.** A call that is not answered in time, a standby, safe mode, and data nodes that are missing are
waited for, up to `paimon-stream.store.max-outage`, if HDFS has answered the job before. Else the error comes within
seconds. A rename whose answer was lost is judged by its temporary file, whose name only its writer knows: it is
gone if and only if the rename took effect. Only the active name node is asked: observers, which may know an older
state, are never read, whatever `dfs.client.failover.proxy.provider` says. Of a file of more than 8 MiB the first
8 MiB wait like this, too. If it fails later, Spark repeats its task. Quotas (`NoSpace`), rights (`PermissionDenied`), names and a folder in the place
of a file (`AlreadyExists`) are refused at once, with the command that helps.

**Names** have at most 255 bytes and no colon. Values of partitions are escaped, so they may have colons.

**What it costs.** A file takes 5 calls (create, addBlock, fsync, complete, rename), and reading one takes 1.
A folder of 100,000 files is listed by 100 calls, in 0.4 to 0.8 s on two cores beside other work. Page by page that needs 0.6 MB of
Python objects, and as one list 21 MB (`python benchmarks/hdfs.py --files 100000`).
A batch of one data file took 44 to 51 calls of the name node by `PaimonTable.new_commit`, 52 to 58 by the sink, and 43 to 56
by Java 1.4.2, on one server with one data node (`python benchmarks/hdfs.py`). Alone on two cores, 45 commits in turns with
Java's took 0.10 of its time in the median (130 ms and 1,274 ms), because Java waits longer for files to be closed.

Files that do not depend on each other are written at once. A name node closes a file only when a data node has
told it of the last block, which often comes a few milliseconds after the client has asked. hdfs-native then waits for
half a second, and Java for 0.4 s. Here files that are written at once are closed one after another, which takes 2 to 5 ms each and
lets the data node be in time. If it is not, the lease of a file of at most 8 MiB is recovered after 20 ms, or later where data nodes
sync slowly, which closes it at once: 2 calls more. If that comes too early, the content goes to another file, and the wait doubles.

**What is left behind.** A killed writer leaves a hidden file, `.<name>.<uuid>.tmp`. `remove_orphan_files` deletes it. The name node
closes it after an hour at most. A write that is given up in an outage leaves none: the next call that HDFS answers in the
same process deletes its file. Deleted files do not go to the trash.
"""

_HADOOP: Final = (
    ("`fs.defaultFS`", "the file system of `hdfs:///path`"),
    ("`dfs.ha.namenodes.<service>`, `dfs.namenode.rpc-address.<service>.<node>`", "the name nodes"),
    (
        "`dfs.client.failover.proxy.provider.<service>`, `….random.order.<service>`, "
        "`….resolve-needed.<service>`, `….resolver.useFQDN.<service>`",
        "how the active one is found",
    ),
    ("`fs.viewfs.mounttable.<table>.link.<path>`, `….linkFallback`", "where mounts lead"),
    ("`hadoop.security.authentication`", "`kerberos` or `simple`"),
    ("`dfs.data.transfer.protection`", "protects the content on the way to data nodes"),
    ("`dfs.client.use.datanode.hostname`", "data nodes are addressed by their names"),
    (
        "`dfs.client.block.write.replace-datanode-on-failure.enable`, `….policy`, `….best-effort`",
        "what happens when a data node fails during a write",
    ),
    (
        "`security.kerberos.login.principal`, `security.kerberos.login.keytab`",
        "a login by a keytab, under Java Paimon's names",
    ),
)

_PEERS: Final = (
    ("a stream, judged and with its journal", "264", "321", "647", "51", "18"),
    ("`new_commit`", "216", "372", "467", "46", "17"),
    ("pypaimon 2.1", "2,700", "3,814", "4,620", "240", "74"),
    ("Java 1.4.2", "2,686", "3,118", "3,894", "572", "57"),
)

_UPKEEP: Final = (
    ("expiry of 200 snapshots", "102 (14)", "14.6 (7.3)", "7.0"),
    ("orphans among 10,000 files", "33.6 (11.9)", "4.0 (4.3)", "8.5"),
    ("`verify` of 10,000 files", "31.7 (12.1)", "3.5 (2.5)", "9.1"),
    ("`to_arrow` of 40 files", "2.1 (0.3)", "0.8 (0.2)", "2.5"),
    ("deletion of 10,000 files", "355 (52)", "0.35 (0.54)", "1,000"),
)

_LARGE: Final = (
    ("orphans, trips", "4,483", "124", "36"),
    ("orphans, seconds at 25 ms", "130 (5.9)", "10.9 (4.5)", "12"),
    ("`verify`, trips", "4,471", "93", "48"),
    ("`verify`, seconds at 25 ms", "135 (13)", "16.2 (10)", "8.3"),
)

_BESIDE: Final = (
    (
        "S3, without a catalog's lock (path tables, a file system catalog)",
        "it may replace our newest snapshot",
        "one-way",
    ),
    (
        "S3, with the lock of a JDBC catalog, by which the table is named here, too",
        "both hold the lock while they publish",
        "safe",
    ),
    (
        "S3, with the lock of a Hive catalog, by which the table is named here, too",
        "both hold the lock while they publish; tried on a disk, not on S3",
        "safe, as far as it was tried",
    ),
    (
        "S3, a bucket whose policy demands `s3:if-none-match` for `*/snapshot/snapshot-*`",
        "its copies are refused, so it cannot commit",
        "safe, Java only reads",
    ),
    (
        "S3, a REST catalog",
        "the server publishes, and this release commits beside it",
        "unsafe, do not mix",
    ),
    (
        "OSS, Java 2.0",
        "its copy is refused if the name is taken",
        "safe, if our own creates are atomic (the start of a stream tests it)",
    ),
    ("OSS, Java before 2.0", "as on S3", "one-way"),
    ("Google Cloud Storage", "it copies without a condition", "one-way"),
    (
        "Azure, an account with a hierarchical namespace",
        "its rename is refused if the name is taken",
        "safe",
    ),
    ("Azure, other accounts", "it copies without a condition", "one-way"),
    (
        "a local disk",
        "it looks, and then moves; only microseconds lie between",
        "one-way, and no stream warns of it",
    ),
    (
        "HDFS",
        "both rename a temporary file, and the name node refuses the second",
        "safe, without a lock",
    ),
    ("pypaimon, anywhere", "it looks, and then writes", "unsafe, do not mix"),
)

_TITLES: Final = {"s3": "S3 and OSS", "gcs": "Google Cloud Storage", "azure": "Azure"}

_REFUSED: Final = """\

## What is refused

These names are known, and refused, because what they ask for would not be done. Names are in their
shortest form.
"""


RIGHTS: Final[dict[str, dict[str, str]]] = {
    "s3": {
        "read": "s3:GetObject",
        "list": "s3:ListBucket",
        "write": "s3:PutObject",
        "delete": "s3:DeleteObject",
        "abort": "s3:AbortMultipartUpload",
    },
    "gcs": {
        "read": "storage.objects.get",
        "list": "storage.objects.list",
        "write": "storage.objects.create",
        "delete": "storage.objects.delete",
        "parts": "storage.multipartUploads.create",
        "abort": "storage.multipartUploads.abort",
    },
    "azure": {
        "read": "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
        "write": "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
        "delete": "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
    },
}
"""What is done with objects, by kind of store, and the right that it needs there."""


def policy() -> dict[str, object]:
    """A policy of IAM with the rights for one warehouse."""
    of_objects = [right for done, right in RIGHTS["s3"].items() if done != "list"]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": of_objects,
                "Resource": "arn:aws:s3:::BUCKET/warehouse/*",
            },
            {
                "Effect": "Allow",
                "Action": [RIGHTS["s3"]["list"]],
                "Resource": "arn:aws:s3:::BUCKET",
                "Condition": {"StringLikeIfExists": {"s3:prefix": ["warehouse/*"]}},
            },
        ],
    }


def render() -> str:
    """The whole page, in Markdown."""
    beside = rows(("Where Java commits", "Java against us", "Verdict"), _BESIDE)
    named = ((_TITLES[kind], _listed(list(names.values()))) for kind, names in RIGHTS.items())
    start = _START.replace("\n{beside}\n", beside).replace(
        "\n{rights}\n", rows(("Store", "Rights"), named)
    )
    batch = ("", "Least", "Median", "Most", "Median, no delay", "Requests")
    start = start.replace("\n{peers}\n", rows(batch, _PEERS))
    start = start.replace("\n{upkeep}\n", rows(("", "One by one", "As it is", "Times"), _UPKEEP))
    start = start.replace("\n{large}\n", rows(("", "One by one", "As it is", "Times"), _LARGE))
    parts = [
        start.replace("{policy}", json.dumps(policy(), indent=2)),
        rows(("Option", "Default", "What it does"), map(cells, store_options())),
    ]
    for kind, options in STORE_OPTIONS.items():
        parts.append(f"\n## Options for {_TITLES[kind]}\n")
        parts.append(
            rows(("Option", "Other names", "Environment", "What it is"), map(_cells, options))
        )
    parts.append(_REFUSED)
    parts.append(rows(("Store", "Names", "What to do"), _refused()))
    parts.append(_HDFS.replace("\n{hadoop}\n", rows(("Name", "What it is"), _HADOOP)))
    return "".join(parts)


def _cells(option: StoreOption) -> tuple[str, ...]:
    first, *others = option.names
    other = [*others, *(f"{name} (the opposite)" for name in option.inverse)]
    secret = " Secret." if option.secret else ""
    return _listed([first]), _listed(other), _listed(option.environment), option.doc + secret


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return (
        ", ".join(f"`{name}`".replace(" (the opposite)`", "` (the opposite)") for name in names)
        or "–"
    )


def _refused() -> Iterator[tuple[str, ...]]:
    for kind, names in REFUSED.items():
        for cure in dict.fromkeys(names.values()):
            yield (
                _TITLES[kind],
                _listed([name for name, one in names.items() if one == cure]),
                f"{cure}.",
            )


if __name__ == "__main__":
    sys.stdout.write(render())
