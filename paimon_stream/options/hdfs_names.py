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
    """Hadoop's name of an option, which may have Java Paimon's prefix, and be in lower case, as
    Spark writes the options of a data source; None for a name without an effect here.
    """
    for candidate in (name, name[len(_JAVAS) :] if name.lower().startswith(_JAVAS) else name):
        lowered = candidate.lower()
        for known in HADOOP_NAMES:
            if lowered == known.lower():
                return known
        for prefix in HADOOP_PREFIXES:
            if lowered.startswith(prefix.lower()):
                return prefix + candidate[len(prefix) :]
    return None
