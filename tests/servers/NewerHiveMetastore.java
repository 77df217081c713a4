import java.lang.reflect.InvocationTargetException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.security.HadoopThriftAuthBridge;

/**
 * A real Hive Metastore of Hive 3.1 or 4.0 on loopback, with its database in memory:
 * NewerHiveMetastore PORT WAREHOUSE KEY=VALUE ...
 */
public class NewerHiveMetastore {
    public static void main(String[] args) throws Throwable {
        Configuration conf = MetastoreConf.newMetastoreConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:hms;create=true");
        conf.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("metastore.schema.verification", "false");
        conf.set("metastore.warehouse.dir", args[1]);
        conf.set("metastore.server.min.threads", "2");
        // Of the tasks that 3.1 begins by itself, its jar has only some.
        conf.set("metastore.task.threads.always", "org.apache.hadoop.hive.metastore.events.EventCleanerTask");
        conf.set("metastore.expression.proxy", "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy");
        for (int i = 2; i < args.length; i++) conf.set(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        makeTablesOfLocks(conf);
        try {
            HiveMetaStore.startMetaStore(Integer.parseInt(args[0]), HadoopThriftAuthBridge.getBridge(), conf);
        } catch (Throwable failed) { // threads that have begun would keep the process
            failed.printStackTrace();
            System.exit(1);
        }
    }

    /** In 4.0 scripts make these tables, which are in no jar. So there are no locks. */
    private static void makeTablesOfLocks(Configuration conf) throws Exception {
        try {
            Class.forName("org.apache.hadoop.hive.metastore.txn.TxnDbUtil")
                    .getMethod("prepDb", Configuration.class)
                    .invoke(null, conf);
        } catch (ClassNotFoundException ofNewer) {
            System.err.println("There are no tables of locks.");
        } catch (InvocationTargetException failed) {
            throw new RuntimeException(failed.getCause());
        }
    }
}
