"""The names of Hadoop's configuration that have an effect on HDFS here."""

from typing import Final

HADOOP_NAMES: Final = (
    "fs.defaultFS",
    "hadoop.security.authentication",
    "dfs.data.transfer.protection",
    "dfs.client.use.datanode.hostname",
    "dfs.client.block.write.replace-datanode-on-failure.enable",
    "dfs.client.block.write.replace-datanode-on-failure.policy",
    "dfs.client.block.write.replace-datanode-on-failure.best-effort",
)
HADOOP_PREFIXES: Final = (
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "dfs.client.failover.proxy.provider.",
    "dfs.client.failover.random.order.",
    "dfs.client.failover.resolve-needed.",
    "dfs.client.failover.resolver.useFQDN.",
    "fs.viewfs.mounttable.",
)
"""How names begin that end with a name service or a mount table."""
_JAVAS: Final = "hadoop."
"""What Java Paimon puts before names of Hadoop in the options of a catalog."""


def hadoop_name(name: str) -> str | None:
    """Hadoop's name of an option, which may have Java Paimon's prefix; None for a name without an
    effect here.
    """
    for candidate in (name, name.removeprefix(_JAVAS)):
        if candidate in HADOOP_NAMES or candidate.startswith(HADOOP_PREFIXES):
            return candidate
    return None
