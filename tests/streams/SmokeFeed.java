import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Feeds the Streams smoke test for a time of our choice and verifies its output: {@code SmokeFeed BOOTSTRAP SECONDS}. */
public class SmokeFeed {
    private static final int KEYS = 20;
    private static final int RECORDS_PER_KEY_AND_MINUTE = 1000;

    /**
     * How long no partition may grow before the output is verified. The verification begins with a look at whether any
     * transaction is open, and takes one of an application that still works for one that was left behind. A transaction that
     * was left behind is aborted after its timeout, 10 s here, when the broker looks next, every 10 s.
     */
    private static final Duration QUIET = Duration.ofSeconds(25);
    private static final Duration QUIET_LIMIT = Duration.ofMinutes(4);

    public static void main(String[] args) throws Exception {
        int seconds = Integer.parseInt(args[1]);
        int perKey = Math.max(100, RECORDS_PER_KEY_AND_MINUTE * seconds / 60);
        Map<String, Set<Integer>> data = SmokeTestDriver.generate(args[0], KEYS, perKey, Duration.ofSeconds(seconds));
        System.out.println("fed " + data.values().stream().mapToInt(Set::size).sum() + " values; waiting for the application");
        awaitQuiet(args[0], QUIET_LIMIT);
        System.out.println("verifying");
        SmokeTestDriver.VerificationResult result = SmokeTestDriver.verify(args[0], data, perKey, true);
        System.out.println(result.result());
        System.exit(result.passed() ? 0 : 1);
    }

    /** Waits until no partition has grown for QUIET; after the limit the verification has to decide. */
    private static void awaitQuiet(String bootstrap, Duration limit) throws Exception {
        Instant giveUp = Instant.now().plus(limit);
        Instant since = Instant.now();
        Map<TopicPartition, Long> before = Map.of();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            while (Instant.now().isBefore(giveUp) && Duration.between(since, Instant.now()).compareTo(QUIET) < 0) {
                Thread.sleep(1000);
                Map<TopicPartition, Long> now = ends(admin);
                if (!now.equals(before)) {
                    since = Instant.now();
                    before = now;
                }
            }
        }
    }

    /** The end of every partition of the topics that are not the broker's own. */
    private static Map<TopicPartition, Long> ends(Admin admin) throws Exception {
        List<String> topics = List.copyOf(admin.listTopics().names().get());
        Map<TopicPartition, OffsetSpec> latest = admin.describeTopics(topics).allTopicNames().get().values().stream()
            .flatMap(t -> t.partitions().stream().map(p -> new TopicPartition(t.name(), p.partition())))
            .collect(Collectors.toMap(Function.identity(), p -> OffsetSpec.latest()));
        Map<TopicPartition, Long> ends = new HashMap<>();
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> e : admin.listOffsets(latest).all().get().entrySet()) {
            ends.put(e.getKey(), e.getValue().offset());
        }
        return ends;
    }
}
