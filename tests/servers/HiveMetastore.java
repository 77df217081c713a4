import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
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
        HiveMetaStore.startMetaStore(Integer.parseInt(args[0]), ShimLoader.getHadoopThriftAuthBridge(), conf);
    }
}
