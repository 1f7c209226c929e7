import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The driver of Apache Kafka's own client (golang/contract/contract.go has the text of the contract). */
public class Driver {
    record In(long timestamp, byte[] key, byte[] value, List<Header> headers) {}

    static final PrintWriter out =
        new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.ISO_8859_1), 1 << 20));

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "version" -> out.println(version());
            case "produce" -> {
                List<In> records = read();
                for (String arg : Arrays.asList(args).subList(2, args.length)) {
                    String[] codecAndTopic = arg.split("=");
                    produce(args[1], codecAndTopic[0], codecAndTopic[1], records);
                }
            }
            case "consume" -> {
                for (String topic : Arrays.asList(args).subList(3, args.length)) {
                    consume(args[1], topic, Integer.parseInt(args[2]));
                }
            }
            case "group" -> group(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0] + " is no command of the contract");
        }
        out.flush();
    }

    static String version() throws IOException {
        Properties p = new Properties();
        try (InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            p.load(in);
        }
        return p.getProperty("version");
    }

    static List<In> read() throws IOException {
        List<In> records = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.ISO_8859_1), 1 << 20);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split("\t", -1);
            List<Header> headers = new ArrayList<>();
            for (String h : f[3].isEmpty() ? new String[0] : f[3].split(",")) {
                String[] nameAndValue = h.split("=", 2);
                headers.add(new RecordHeader(nameAndValue[0], Base64.getDecoder().decode(nameAndValue[1])));
            }
            records.add(new In(Long.parseLong(f[0]), decode(f[1]), decode(f[2]), headers));
        }
        return records;
    }

    static byte[] decode(String s) {
        return s.equals("-") ? null : Base64.getDecoder().decode(s);
    }

    static String encode(byte[] b) {
        return b == null ? "-" : Base64.getEncoder().encodeToString(b);
    }

    static void produce(String bootstrap, String codec, String topic, List<In> records) throws Exception {
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", bootstrap, "compression.type", codec));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>(records.size());
            for (In r : records) {
                sent.add(producer.send(new ProducerRecord<>(topic, null, r.timestamp, r.key, r.value, r.headers)));
            }
            for (Future<RecordMetadata> f : sent) {
                f.get();
            }
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Properties p = new Properties();
        p.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false", "max.poll.records", "1000"));
        p.putAll(config);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void consume(String bootstrap, String topic, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("bootstrap.servers", bootstrap))) {
            consumer.assign(consumer.partitionsFor(topic).stream().map(i -> new TopicPartition(topic, i.partition())).toList());
            while (count > 0) {
                count -= show(consumer.poll(Duration.ofSeconds(1)));
            }
        }
    }

    static void group(String bootstrap, String group, String topic) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "session.timeout.ms", "6000", "heartbeat.interval.ms", "1000");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                if (show(consumer.poll(Duration.ofMillis(100))) > 0) {
                    consumer.commitSync();
                }
            }
        }
    }

    static int show(ConsumerRecords<byte[], byte[]> records) {
        for (ConsumerRecord<byte[], byte[]> r : records) {
            StringBuilder line = new StringBuilder();
            line.append(r.topic()).append('\t').append(r.partition()).append('\t').append(r.offset()).append('\t').append(r.timestamp());
            line.append('\t').append(encode(r.key())).append('\t').append(encode(r.value())).append('\t');
            String comma = "";
            for (Header h : r.headers()) {
                line.append(comma).append(h.key()).append('=').append(encode(h.value()));
                comma = ",";
            }
            out.append(line).append('\n');
        }
        out.flush();
        return records.count();
    }
}
