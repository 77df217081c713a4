import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageSerializer;
import org.apache.paimon.table.sink.TableCommitImpl;

/** Commits prepared messages and times the commits inside the JVM. Compiled by Janino: no generics. */
public class CommitTimer {

    private final CommitMessageSerializer serializer = new CommitMessageSerializer();
    private List messages;
    private TableCommitImpl commit;

    /** Reads messages from a file: their number, then the length and the bytes of each. */
    public int load(String path) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(path)));
        int count = in.readInt();
        messages = new ArrayList(count);
        for (int i = 0; i < count; i++) {
            byte[] data = new byte[in.readInt()];
            in.readFully(data);
            messages.add(serializer.deserialize(11, data));
        }
        in.close();
        return count;
    }

    /** Opens the table for the next commits. */
    public void open(FileStoreTable table, String user) throws Exception {
        if (commit != null) {
            commit.close();
        }
        commit = table.newCommit(user);
        commit.ignoreEmptyCommit(false);
    }

    /** Commits `count` messages, beginning with number `first`; returns "wall CPU" in nanoseconds. */
    public String commit(long identifier, int first, int count) throws Exception {
        ManifestCommittable committable = new ManifestCommittable(identifier, null);
        for (int i = first; i < first + count; i++) {
            committable.addFileCommittable((CommitMessage) messages.get(i));
        }
        long cpu = cpu();
        long start = System.nanoTime();
        commit.commit(committable);
        long wall = System.nanoTime() - start;
        return wall + " " + (cpu() - cpu);
    }

    /** Returns "files rows" of the newest snapshot. */
    public String live(FileStoreTable table) {
        List entries = table.store().newScan().plan().files();
        long rows = 0;
        for (int i = 0; i < entries.size(); i++) {
            rows += ((ManifestEntry) entries.get(i)).file().rowCount();
        }
        return entries.size() + " " + rows;
    }

    private long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }
}
