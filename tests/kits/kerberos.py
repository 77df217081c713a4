"""A Kerberos realm on loopback: Hadoop's MiniKdc, in a JVM that dies with this process.

with Realm(["alice", "hdfs/localhost"]) as realm:
    realm.conf, realm.keytab        # for KRB5_CONFIG, and the keys of the principals
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.kits.hdfs import HADOOP, HdfsUnavailable
from tests.servers._process import die_with_parent, line_of
from tests.servers.maven import JarsUnavailable, fetched, of_spark

NAME: Final = "EXAMPLE.COM"
_KERB: Final = "2.0.3"
_PARTS: Final = (
    "admin",
    "client",
    "common",
    "core",
    "crypto",
    "identity",
    "server",
    "simplekdc",
    "util",
)
_KERBY: Final = ("asn1", "config", "pkix", "util", "xdr")
_NEEDED: Final = (
    f"org.apache.hadoop:hadoop-minikdc:{HADOOP}",
    *(f"org.apache.kerby:kerb-{part}:{_KERB}" for part in _PARTS),
    *(f"org.apache.kerby:kerby-{part}:{_KERB}" for part in _KERBY),
    f"org.apache.kerby:token-provider:{_KERB}",
)
_OF_SPARK: Final = ("slf4j-api-", "commons-io-", "log4j-")
_RUNNING: Final = "Standalone MiniKdc Running"


class Realm:
    """A realm with these principals, whose keys are in one keytab.

    Attributes:
        conf: the krb5.conf of its clients.
        keytab: the keys.
    """

    def __init__(self, principals: Iterable[str]) -> None:
        self.folder: Final = Path(tempfile.mkdtemp(prefix="kdc-"))
        self.keytab = self.folder / "keytab"
        properties = self.folder / "properties"
        properties.write_text("")
        try:
            path = [*fetched(_NEEDED), *of_spark(*_OF_SPARK)]
        except JarsUnavailable as why:
            raise HdfsUnavailable(str(why)) from None
        main = "org.apache.hadoop.minikdc.MiniKdc"
        command = ["java", "-Xmx64m", "-cp", ":".join(path), main, str(self.folder)]
        log = self.folder / "log"
        with open(log, "wb") as said:
            self.child: Final = subprocess.Popen(
                [*command, str(properties), str(self.keytab), *principals],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=self.folder,
                text=True,
                preexec_fn=die_with_parent,
            )
        while line := line_of(self.child, log):
            if _RUNNING in line:
                break
        else:
            self.stop()
            raise HdfsUnavailable("Hadoop's MiniKdc has ended")
        self.conf = next(self.folder.rglob("krb5.conf"))

    def __enter__(self) -> Realm:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it, and removes its files."""
        self.child.kill()
        self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
