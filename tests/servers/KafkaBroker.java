import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A real Kafka on loopback, broker and controller in one:
 *   KafkaBroker FOLDER PORT ADVERTISED OWN_PORT CONTROLLER_PORT KEY=VALUE ...
 * ADVERTISED is the address, HOST:PORT, that the listener at PORT tells its clients. The orders below go to a listener of
 * their own, so they work even if clients cannot reach that address.
 * The folder keeps its topics. A folder that was used before is started again with them.
 * Or a client of other brokers: KafkaBroker BROKERS
 * Prints "READY", then takes orders, a line each, and answers DONE or FAILED with the reason:
 *   create TOPIC PARTITIONS KEY=VALUE ...    a topic, with settings of its own
 *   delete TOPIC
 *   grow TOPIC PARTITIONS                    more partitions
 *   send TOPIC FILE                          a record of each line of the file: KEY VALUE [PARTITION]; key and value are
 *                                            "-" for none, "=" for no bytes, else base64
 *   drop TOPIC PARTITION OFFSET              the records of a partition before this offset are gone; -1 for all records
 *   ends TOPIC                               the next offset of each partition, as PARTITION=OFFSET ...
 *   exit
 */
public class KafkaBroker {
    private final Map<String, Object> clients;
    private final Admin admin;

    private KafkaBroker(String address) {
        clients = new HashMap<>(Map.of("bootstrap.servers", address));
        admin = Admin.create(clients);
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 1) startBroker(args);
        var server = new KafkaBroker(args.length > 1 ? "127.0.0.1:" + args[3] : args[0]);
        server.admin.describeCluster().nodes().get();
        server.serve();
        System.exit(0);
    }

    private static void startBroker(String[] args) throws Exception {
        Path settings = configured(Path.of(args[0]), args);
        String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", settings.toString()};
        boolean used = Files.exists(Path.of(args[0], "data", "meta.properties"));
        // Standard output is for answers.
        if (!used && kafka.tools.StorageTool.execute(format, System.err) != 0) System.exit(1);
        var broker = new Thread(() -> kafka.Kafka.main(new String[] {settings.toString()}), "broker");
        broker.setDaemon(true);
        broker.start();
    }

    private static Path configured(Path folder, String[] args) throws Exception {
        String own = "OWN://127.0.0.1:" + args[3];
        String controller = "127.0.0.1:" + args[4];
        var settings = new TreeMap<String, String>();
        settings.put("process.roles", "broker,controller");
        settings.put("node.id", "1");
        settings.put("controller.quorum.voters", "1@" + controller);
        settings.put("listeners", "PLAINTEXT://127.0.0.1:" + args[1] + "," + own + ",CONTROLLER://" + controller);
        settings.put("advertised.listeners", "PLAINTEXT://" + args[2] + "," + own);
        settings.put("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OWN:PLAINTEXT,CONTROLLER:PLAINTEXT");
        settings.put("inter.broker.listener.name", "OWN");
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("log.dirs", folder.resolve("data").toString());
        settings.put("auto.create.topics.enable", "false");
        // One broker has no others to copy to.
        settings.put("offsets.topic.replication.factor", "1");
        settings.put("offsets.topic.num.partitions", "1");
        settings.put("transaction.state.log.replication.factor", "1");
        settings.put("transaction.state.log.min.isr", "1");
        settings.put("transaction.state.log.num.partitions", "1");
        settings.put("group.initial.rebalance.delay.ms", "0");
        // On a busy machine, heartbeats are late. Without one for 9 seconds, the broker would lead no partition.
        settings.put("broker.session.timeout.ms", "120000");
        for (int i = 5; i < args.length; i++) settings.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        var lines = new ArrayList<String>();
        settings.forEach((key, value) -> lines.add(key + "=" + value));
        return Files.write(folder.resolve("server.properties"), lines);
    }

    private void serve() throws Exception {
        System.out.println("READY");
        var lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8));
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
            case "create" -> {
                var topic = new NewTopic(words[1], Optional.of(Integer.valueOf(words[2])), Optional.of((short) 1));
                var own = new HashMap<String, String>();
                for (int i = 3; i < words.length; i++) own.put(words[i].split("=", 2)[0], words[i].split("=", 2)[1]);
                admin.createTopics(Set.of(topic.configs(own))).all().get();
            }
            case "delete" -> admin.deleteTopics(Set.of(words[1])).all().get();
            case "grow" -> admin.createPartitions(Map.of(words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])))).all().get();
            case "send" -> {
                return String.valueOf(send(words[1], Path.of(words[2])));
            }
            case "drop" -> {
                var partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
                admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(Long.parseLong(words[3])))).all().get();
            }
            case "ends" -> {
                return ends(words[1]);
            }
            default -> throw new IllegalArgumentException("unknown order: " + words[0]);
        }
        return "";
    }

    private int send(String topic, Path file) throws Exception {
        var settings = new HashMap<>(clients);
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        settings.put("delivery.timeout.ms", "600000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                var lines = Files.lines(file)) {
            for (var line : (Iterable<String>) lines::iterator) {
                String[] words = line.split(" ");
                Integer partition = words.length > 2 ? Integer.valueOf(words[2]) : null;
                sent.add(producer.send(new ProducerRecord<>(topic, partition, bytes(words[0]), bytes(words[1]))));
            }
            producer.flush();
            for (var record : sent) record.get();
        }
        return sent.size();
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word.equals("=") ? "" : word);
    }

    private String ends(String topic) throws Exception {
        var described = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
        var asked = new HashMap<TopicPartition, OffsetSpec>();
        for (var partition : described.partitions()) asked.put(new TopicPartition(topic, partition.partition()), OffsetSpec.latest());
        var ends = new TreeMap<Integer, Long>();
        admin.listOffsets(asked).all().get().forEach((partition, end) -> ends.put(partition.partition(), end.offset()));
        var answer = new StringBuilder();
        ends.forEach((partition, end) -> answer.append(partition).append("=").append(end).append(" "));
        return answer.toString().trim();
    }
}
