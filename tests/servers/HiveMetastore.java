import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.ql.txn.AcidHouseKeeperService;
import org.apache.hadoop.hive.shims.ShimLoader;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A real Hive Metastore on loopback, with its database in memory: HiveMetastore PORT WAREHOUSE KEY=VALUE ...
 * It is the one in the jars of pyspark, 2.3.10.
 */
public class HiveMetastore {
    public static void main(String[] args) throws Throwable {
        System.setProperty("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:hms;create=true");
        System.setProperty("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        HiveConf conf = new HiveConf();
        conf.setClassLoader(HiveMetastore.class.getClassLoader()); // for the class below
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:hms;create=true");
        conf.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("datanucleus.connectionPoolingType", "HikariCP"); // pyspark has no BoneCP
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("hive.metastore.warehouse.dir", args[1]);
        conf.set("hive.metastore.server.min.threads", "2");
        for (int i = 2; i < args.length; i++) conf.set(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        UserGroupInformation.setConfiguration(conf); // with Kerberos, it logs in
        TxnDbUtil.prepDb(conf); // the tables of locks
        if (conf.getBoolVar(HiveConf.ConfVars.HIVE_COMPACTOR_INITIATOR_ON)) {
            new AcidHouseKeeperService().start(conf); // locks expire; only main() of HiveMetaStore starts it
        }
        HiveMetaStore.startMetaStore(Integer.parseInt(args[0]), ShimLoader.getHadoopThriftAuthBridge(), conf);
    }

    /** Makes the folders of databases and tables on S3 on the disk, by their paths without the bucket. */
    public static class FoldersForS3 extends RawLocalFileSystem {
        private URI bucket;

        @Override
        public void initialize(URI uri, Configuration conf) throws IOException {
            bucket = URI.create(uri.getScheme() + "://" + uri.getAuthority());
            super.initialize(uri, conf);
        }

        @Override
        public URI getUri() {
            return bucket == null ? super.getUri() : bucket; // the constructor asks already
        }
    }
}
