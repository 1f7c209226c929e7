import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Feeds the Streams smoke test for a time of our choice and verifies its output: {@code SmokeFeed BOOTSTRAP SECONDS}. */
public class SmokeFeed {
    private static final int KEYS = 20;
    private static final int RECORDS_PER_KEY_AND_MINUTE = 1000;

    public static void main(String[] args) {
        int seconds = Integer.parseInt(args[1]);
        int perKey = Math.max(100, RECORDS_PER_KEY_AND_MINUTE * seconds / 60);
        Map<String, Set<Integer>> data = SmokeTestDriver.generate(args[0], KEYS, perKey, Duration.ofSeconds(seconds));
        System.out.println("fed " + data.values().stream().mapToInt(Set::size).sum() + " values; verifying");
        SmokeTestDriver.VerificationResult result = SmokeTestDriver.verify(args[0], data, perKey, true);
        System.out.println(result.result());
        System.exit(result.passed() ? 0 : 1);
    }
}
