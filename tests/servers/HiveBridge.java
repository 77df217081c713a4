import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;

/** Writes by a table of a catalog, also where the class of the table is not public. */
public class HiveBridge {
    /** Commits one row of a BIGINT and a STRING. */
    public void write(Object table, long id, String name) throws Exception {
        BatchWriteBuilder builder = ((Table) table).newBatchWriteBuilder();
        BatchTableWrite write = builder.newWrite();
        write.write(GenericRow.of(new Object[] {Long.valueOf(id), BinaryString.fromString(name)}));
        BatchTableCommit commit = builder.newCommit();
        commit.commit(write.prepareCommit());
        write.close();
        commit.close();
    }

    /** Tags the newest snapshot. */
    public void createTag(Object table, String name) {
        ((Table) table).createTag(name);
    }

    /** Deletes a tag. */
    public void deleteTag(Object table, String name) {
        ((Table) table).deleteTag(name);
    }
}
