import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.client.program.StreamContextEnvironment;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.DefaultExecutorServiceLoader;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.ResultKind;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * A real Flink: one mini cluster, and SQL over stdin and stdout, a JSON object a line. The process ends when its stdin does.
 *
 * Requests name an operation, and most of them an environment with its settings, which the first request makes:
 *   {"op": "sql", "sql": TEXT, "environment": NAME, "settings": {…}}     runs to its end; rows as [kind, value, …]
 *   {"op": "start", …}                        a job that goes on; answers its number
 *   {"op": "status" | "cancel", "job": N}
 *   {"op": "stop", "job": N, "folder": URI}   stops the job behind a savepoint; answers the savepoint
 * Answers: {"ok": …} or {"error": text of the innermost cause}. Values are numbers, truths and texts.
 */
public class FlinkSql {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final MiniCluster cluster;
    private final String port;
    private final Map<String, TableEnvironment> environments = new HashMap<>();
    private final List<JobClient> jobs = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err); // what libraries print
        FlinkSql flink = new FlinkSql();
        answers.println("READY");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", flink.answer(JSON.readTree(line)));
            } catch (Throwable error) {
                answer.put("error", innermost(error));
                error.printStackTrace();
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0); // also while jobs run
    }

    private FlinkSql() throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("rest.bind-port", "0");
        configuration.setString("taskmanager.memory.network.min", "128mb");
        configuration.setString("taskmanager.memory.network.max", "128mb");
        configuration.setString("taskmanager.memory.managed.size", "256mb");
        cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(16).build());
        cluster.start();
        port = Integer.toString(cluster.getRestAddress().join().getPort());
        // CALL makes environments of its own, which would begin clusters of their own.
        StreamContextEnvironment.setAsContext(
                new DefaultExecutorServiceLoader(), client(), FlinkSql.class.getClassLoader(), false, false);
    }

    private Configuration client() {
        Configuration configuration = new Configuration();
        configuration.setString("execution.target", "remote");
        configuration.setString("rest.address", "localhost");
        configuration.setString("rest.port", port);
        return configuration;
    }

    private TableEnvironment environment(JsonNode request) {
        return environments.computeIfAbsent(request.get("environment").asText(), name -> {
            Configuration configuration = client();
            request.get("settings").fields().forEachRemaining(
                    setting -> configuration.setString(setting.getKey(), setting.getValue().asText()));
            return TableEnvironment.create(EnvironmentSettings.newInstance().withConfiguration(configuration).build());
        });
    }

    private Object answer(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "sql":
                return rows(environment(request).executeSql(request.get("sql").asText()));
            case "start":
                jobs.add(environment(request).executeSql(request.get("sql").asText()).getJobClient().get());
                return jobs.size() - 1;
            case "status":
                return status(job(request));
            case "cancel":
                job(request).cancel().get(60, TimeUnit.SECONDS);
                return null;
            case "stop":
                return job(request).stopWithSavepoint(false, request.get("folder").asText(), SavepointFormatType.CANONICAL)
                        .get(120, TimeUnit.SECONDS);
            default:
                throw new IllegalArgumentException("no such operation: " + request);
        }
    }

    private JobClient job(JsonNode request) {
        return jobs.get(request.get("job").asInt());
    }

    private static String status(JobClient job) throws Exception {
        String status = job.getJobStatus().get(30, TimeUnit.SECONDS).toString();
        if (!status.equals("FAILED")) {
            return status;
        }
        try {
            job.getJobExecutionResult().get(30, TimeUnit.SECONDS);
            return status;
        } catch (Exception failure) {
            return status + ": " + innermost(failure);
        }
    }

    private static String innermost(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.toString();
    }

    private static List<Object> rows(TableResult result) throws Exception {
        List<Object> rows = new ArrayList<>();
        if (result.getResultKind() == ResultKind.SUCCESS && result.getJobClient().isEmpty()) {
            return rows;
        }
        try (CloseableIterator<Row> found = result.collect()) {
            while (found.hasNext()) {
                rows.add(values(found.next()));
            }
        }
        return rows;
    }

    private static List<Object> values(Row row) {
        List<Object> values = new ArrayList<>();
        values.add(row.getKind().shortString());
        for (int column = 0; column < row.getArity(); column++) {
            Object value = row.getField(column);
            boolean isPlain = value == null || value instanceof Number || value instanceof Boolean;
            values.add(isPlain ? value : value.toString());
        }
        return values;
    }
}
