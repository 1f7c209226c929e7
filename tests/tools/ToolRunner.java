import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Apache Kafka's tools one after the other in one JVM, which spares each the start of its own.
 *
 * A call is a line: the milliseconds that it may take, the standard input, the main class and the arguments, in base64 and
 * with a space between. Its answer is a line: the exit code ("timeout" where it took too long), standard output and standard
 * error. What the tools log goes to this program's standard error.
 */
public class ToolRunner {
  /** Ends a tool that exits. What the tool does and prints when it catches this counts for nothing. */
  static class Exited extends Error {
    Exited() {
      super("exited", null, false, false);
    }
  }

  private static volatile String exitCode;
  private static volatile Thread toolThread;

  /** Takes what a tool prints: of its main thread until it exits, of its others always. */
  static class Printed extends OutputStream {
    final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    @Override
    public synchronized void write(int b) {
      if (exitCode == null || Thread.currentThread() != toolThread) {
        bytes.write(b);
      }
    }
  }

  static void exit(int code) {
    if (exitCode == null) {
      exitCode = "" + code;
    }
    throw new Exited();
  }

  public static void main(String[] unused) throws Exception {
    PrintStream answers = System.out;
    List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
    Exit.setExitProcedure((code, message) -> exit(code));
    Exit.setHaltProcedure((code, message) -> exit(code));
    Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
    BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line; (line = calls.readLine()) != null; ) {
      String[] fields = Arrays.stream(line.split(" ", -1)).map(ToolRunner::decode).toArray(String[]::new);
      Printed out = new Printed(), err = new Printed();
      System.setIn(new ByteArrayInputStream(fields[1].getBytes(StandardCharsets.UTF_8)));
      System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
      System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
      hooks.clear();
      exitCode = null;
      String code = call(Long.parseLong(fields[0]), fields[2], Arrays.copyOfRange(fields, 3, fields.length), hooks);
      System.out.flush();
      System.err.flush();
      answers.println(encode(code.getBytes(StandardCharsets.UTF_8)) + " " + encode(out.bytes.toByteArray()) + " " + encode(err.bytes.toByteArray()));
      answers.flush();
    }
  }

  static String call(long millis, String tool, String[] args, List<Runnable> hooks) throws InterruptedException {
    Thread t = new Thread(() -> {
      try {
        Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
      } catch (InvocationTargetException e) {
        if (exitCode == null && !(e.getCause() instanceof InterruptedException)) {
          System.err.println("Exception in thread \"main\" " + e.getCause());
          exitCode = "1"; // as the JVM ends when main throws
        }
      } catch (ReflectiveOperationException e) {
        exitCode = e.toString();
      }
    }, "main");
    t.setDaemon(true);
    toolThread = t;
    t.start();
    t.join(millis);
    boolean late = t.isAlive() && exitCode == null;
    for (Runnable hook : new ArrayList<>(hooks)) {
      hook.run();
    }
    if (t.isAlive()) {
      t.interrupt();
      t.join(10_000);
    }
    return late ? "timeout" : exitCode == null ? "0" : exitCode;
  }

  static String decode(String s) {
    return new String(Base64.getDecoder().decode(s), StandardCharsets.UTF_8);
  }

  static String encode(byte[] b) {
    return Base64.getEncoder().encodeToString(b);
  }
}
