import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.server.namenode.NameNodeRpcServer;
import org.apache.hadoop.metrics2.impl.MetricsCollectorImpl;
import org.apache.hadoop.metrics2.lib.MutableRatesWithAggregation;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A real HDFS on loopback: MiniHdfs FOLDER NAME_NODES DATA_NODES KEY=VALUE ...
 * Prints "READY HTTP_PORT RPC_PORT ...", then takes orders, a line each, and answers DONE or FAILED with the reason:
 *   kill-name-node N, start-name-node N      a name node keeps its port
 *   kill-data-node, start-data-nodes         the first data node that runs; all that were killed
 *   safe-mode on|off
 *   quota PATH NAMES BYTES                   "-" for no limit
 *   mkdirs PATH, chmod PATH OCTAL, chown PATH USER GROUP
 *   modified PATH MILLIS                     when the file was modified, in milliseconds since the epoch
 *   count PATH                               how many files are below the path
 *   active N                                 the other name nodes are standby
 *   observer N                               a standby answers reads
 *   token FILE RENEWER                       a delegation token of the server's own user, as a token file
 *   cancel-token FILE                        the tokens of such a file are worth nothing any more
 *   calls                                    how many calls of each kind the active name node has had, as NAME=COUNT ...
 *   exit
 * With two name nodes they share their edits, and the first is active.
 */
public class MiniHdfs {
    private final MiniDFSCluster cluster;
    private final List<DataNodeProperties> killed = new ArrayList<>();
    private int active = 0;

    private MiniHdfs(MiniDFSCluster cluster) {
        this.cluster = cluster;
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set("dfs.namenode.fs-limits.min-block-size", "1024");
        // A data node finds a name node that was started again within a second.
        conf.set("dfs.heartbeat.interval", "1");
        conf.set("ipc.client.connect.retry.interval", "100");
        for (int i = 3; i < args.length; i++) conf.set(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        UserGroupInformation.setConfiguration(conf);
        int nameNodes = Integer.parseInt(args[1]);
        var builder = new MiniDFSCluster.Builder(conf, new java.io.File(args[0])).numDataNodes(Integer.parseInt(args[2]));
        builder.nnTopology(nameNodes > 1 ? MiniDFSNNTopology.simpleHATopology(nameNodes) : MiniDFSNNTopology.simpleSingleNN(0, 0));
        var server = new MiniHdfs(builder.build());
        if (nameNodes > 1) server.cluster.transitionToActive(0);
        server.cluster.waitActive();
        server.serve(nameNodes);
        System.exit(0);
    }

    private void serve(int nameNodes) throws Exception {
        var ready = new StringBuilder("READY " + cluster.getHttpUri(0).replaceAll(".*:", ""));
        for (int i = 0; i < nameNodes; i++) ready.append(" ").append(cluster.getNameNodePort(i));
        System.out.println(ready);
        var lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null && !line.equals("exit"); line = lines.readLine()) {
            String answer;
            try {
                answer = "DONE " + obey(line.trim().split(" "));
            } catch (Exception e) {
                answer = "FAILED " + String.valueOf(e).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "kill-name-node" -> cluster.shutdownNameNode(Integer.parseInt(words[1]));
            case "start-name-node" -> {
                int node = Integer.parseInt(words[1]);
                cluster.restartNameNode(node, false);
                if (node == active && cluster.getNumNameNodes() > 1) cluster.transitionToActive(node);
                cluster.waitActive(node);
            }
            case "kill-data-node" -> killed.add(cluster.stopDataNode(0));
            case "start-data-nodes" -> {
                for (DataNodeProperties node : killed) cluster.restartDataNode(node, true);
                killed.clear();
                cluster.waitActive();
            }
            case "safe-mode" -> {
                var action = words[1].equals("on") ? SafeModeAction.SAFEMODE_ENTER : SafeModeAction.SAFEMODE_LEAVE;
                cluster.getNameNode(active).getRpcServer().setSafeMode(action, false);
            }
            case "quota" -> files().setQuota(new Path(words[1]), quota(words[2]), quota(words[3]));
            case "mkdirs" -> files().mkdirs(new Path(words[1]));
            case "chmod" -> files().setPermission(new Path(words[1]), new FsPermission(words[2]));
            case "chown" -> files().setOwner(new Path(words[1]), words[2], words[3]);
            case "modified" -> files().setTimes(new Path(words[1]), Long.parseLong(words[2]), -1);
            case "count" -> {
                return String.valueOf(files().getContentSummary(new Path(words[1])).getFileCount());
            }
            case "active" -> {
                int next = Integer.parseInt(words[1]);
                if (cluster.getNameNode(active) != null && next != active) cluster.transitionToStandby(active);
                cluster.transitionToActive(next);
                active = next;
            }
            case "observer" -> cluster.transitionToObserver(Integer.parseInt(words[1]));
            case "token" -> {
                var credentials = new org.apache.hadoop.security.Credentials();
                files().addDelegationTokens(words[2], credentials);
                credentials.writeTokenStorageFile(new Path("file://" + words[1]), new Configuration());
            }
            case "cancel-token" -> {
                var credentials = org.apache.hadoop.security.Credentials.readTokenStorageFile(new java.io.File(words[1]), new Configuration());
                for (var token : credentials.getAllTokens()) token.cancel(files().getConf());
            }
            case "calls" -> {
                return calls();
            }
            default -> throw new IllegalArgumentException("unknown order: " + words[0]);
        }
        return "";
    }

    private DistributedFileSystem files() throws Exception {
        return cluster.getFileSystem(active);
    }

    private static long quota(String text) {
        return text.equals("-") ? org.apache.hadoop.hdfs.protocol.HdfsConstants.QUOTA_RESET : Long.parseLong(text);
    }

    /** What the name node has counted of its calls. Its beans are up to ten seconds old, so they are not asked. */
    private String calls() throws Exception {
        var server = ((NameNodeRpcServer) cluster.getNameNode(active).getRpcServer()).getClientRpcServer();
        var field = server.getRpcDetailedMetrics().getClass().getDeclaredField("rates");
        field.setAccessible(true);
        var collected = new MetricsCollectorImpl();
        ((MutableRatesWithAggregation) field.get(server.getRpcDetailedMetrics())).snapshot(collected.addRecord("calls"), true);
        var counts = new StringBuilder();
        for (var metric : collected.getRecords().get(0).metrics())
            if (metric.name().endsWith("NumOps"))
                counts.append(metric.name().replace("NumOps", "")).append("=").append(metric.value()).append(" ");
        return counts.toString().trim();
    }
}
