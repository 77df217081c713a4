import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Wrote flat_messages.jsonl: java -cp JARS RecordCanal.java PORT BINLOG FILE
 * JARS are com.alibaba.otter:canal.server:1.1.7 and what it needs. A MariaDB at 127.0.0.1:PORT, with server-id = 1,
 * log-bin, binlog_format = ROW and binlog_row_image = FULL, has run statements.sql. BINLOG is the name of its first log.
 * Its user canal has the password canal and all rights. Ends when nothing has come for 8 seconds.
 */
public class RecordCanal {
    private static final String TABLES = "inventory\\..*";

    public static void main(String[] args) throws Exception {
        var canal = new Canal();
        canal.setId(1L);
        canal.setName("one");
        canal.setCanalParameter(parameters(Integer.parseInt(args[0]), args[1]));
        var server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> new CanalInstanceWithManager(canal, TABLES));
        server.start();
        server.start("one");
        var client = new ClientIdentity("one", (short) 1001, TABLES);
        server.subscribe(client);
        var pool = new ThreadPoolExecutor(1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        try (var out = Files.newOutputStream(Path.of(args[2]))) {
            for (int silent = 0; silent < 4; ) {
                Message message = server.getWithoutAck(client, 1000, 2000L, TimeUnit.MILLISECONDS);
                silent = message.getId() == -1 ? silent + 1 : 0;
                if (message.getId() == -1) continue;
                var rows = MQMessageUtils.buildMessageData(message, pool);
                for (FlatMessage flat : MQMessageUtils.messageConverter(rows, message.getId())) {
                    // As the producer for Kafka does.
                    out.write(JSON.toJSONBytes(flat, JSONWriter.Feature.WriteNulls, JSONWriter.Feature.LargeObject));
                    out.write('\n');
                }
                server.ack(client, message.getId());
            }
        }
        System.exit(0);
    }

    private static CanalParameter parameters(int port, String log) {
        var address = new InetSocketAddress("127.0.0.1", port);
        String position = "{\"journalName\":\"" + log + "\",\"position\":4}";
        var chosen = new CanalParameter();
        chosen.setRunMode(CanalParameter.RunMode.EMBEDDED);
        chosen.setMetaMode(CanalParameter.MetaMode.MEMORY);
        chosen.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        chosen.setIndexMode(CanalParameter.IndexMode.MEMORY);
        chosen.setStorageMode(CanalParameter.StorageMode.MEMORY);
        chosen.setSourcingType(CanalParameter.SourcingType.MYSQL);
        // It asks for two addresses, the second one for a failover.
        chosen.setDbAddresses(List.of(address, address));
        chosen.setPositions(List.of(position, position));
        chosen.setDbUsername("canal");
        chosen.setDbPassword("canal");
        chosen.setSlaveId(1234L);
        chosen.setConnectionCharset("UTF-8");
        chosen.setDetectingEnable(false);
        chosen.setTsdbEnable(false);
        chosen.setGtidEnable(false);
        chosen.setMemoryStorageRawEntry(true);
        chosen.setParallel(false);
        return chosen;
    }
}
