import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's engine: sends the changes of a database to Kafka, as JSON.
 *
 * <p>The only argument is a file of properties: those of the engine and its connector, and
 * `bootstrap.servers`. It prints "READY" when it begins and runs until it is killed. A batch of
 * events counts as done once Kafka has all of them; what was under way when the process died is
 * sent again. An event goes to another topic only after Kafka has all events before it: whoever
 * sees a row that was inserted last may kill this process, and nothing of the other tables is lost.
 */
public final class DebeziumEvents {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        Properties kafka = new Properties();
        kafka.put("bootstrap.servers", properties.remove("bootstrap.servers"));
        kafka.put("acks", "all");
        kafka.put("enable.idempotence", "true");
        kafka.put("key.serializer", StringSerializer.class.getName());
        kafka.put("value.serializer", StringSerializer.class.getName());
        KafkaProducer<String, String> producer = new KafkaProducer<>(kafka);
        DebeziumEngine<ChangeEvent<String, String>> engine =
            DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying((events, committer) -> {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    String topic = null;
                    for (ChangeEvent<String, String> event : events) {
                        if (!event.destination().equals(topic)) producer.flush();
                        topic = event.destination();
                        sent.add(producer.send(new ProducerRecord<>(event.destination(), event.key(), event.value())));
                    }
                    for (int i = 0; i < sent.size(); i++) {
                        try {
                            sent.get(i).get();
                        } catch (java.util.concurrent.ExecutionException e) {
                            throw new IllegalStateException("Kafka did not take an event", e);
                        }
                        committer.markProcessed(events.get(i));
                    }
                    committer.markBatchFinished();
                })
                .using((success, message, error) -> {
                    System.err.println("The engine ended: " + message);
                    if (error != null) error.printStackTrace();
                    System.exit(success ? 0 : 1);
                })
                .build();
        System.out.println("READY");
        System.out.flush();
        engine.run();
    }
}
