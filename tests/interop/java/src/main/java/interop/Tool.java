package interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** Runs sub-commands of `mqadmin` in this process and keeps what they print; one at a time, since it takes the standard output. */
final class Tool {
    private final String nameServer;

    Tool(Bed bed) {
        nameServer = bed.target.nameServer();
    }

    /**
     * The tools' clients wait at their end until a thread looks up from its queue, each three seconds; it does when it is
     * interrupted, and otherwise goes on.
     */
    private static final Thread WAKER = new Thread(() -> {
        while (true) {
            Thread[] all = new Thread[Thread.activeCount() + 64];
            int count = Thread.enumerate(all);
            for (int i = 0; i < count; i++) {
                if (all[i].getName().startsWith("NettyEventExecutor")) {
                    all[i].interrupt();
                }
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException e) {
                return;
            }
        }
    }, "waker");

    static {
        WAKER.setDaemon(true);
        WAKER.start();
    }

    /** The tool adds its sub-commands at each start and takes the first of a name, whose clients are shut down by then. */
    private static void forgetCommands() {
        try {
            Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
            commands.setAccessible(true);
            ((List<?>) commands.get(null)).clear();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** What the sub-command prints, to the standard output and to the error output, a stack trace included. */
    String prints(String... words) {
        try {
            return keeping(words, (tool, kept) -> tool.run());
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    /** What is done with a tool, and with what it has printed so far. */
    private interface Use {
        void of(Runnable tool, ByteArrayOutputStream kept) throws Exception;
    }

    /** What is printed, to either output, while a sub-command is used. */
    private synchronized String keeping(String[] words, Use use) throws Exception {
        List<String> arguments = new ArrayList<>(List.of(words));
        arguments.add("-n");
        arguments.add(nameServer);
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream stream = new PrintStream(kept, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        try {
            forgetCommands();
            use.of(() -> MQAdminStartup.main0(arguments.toArray(new String[0]), null), kept);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return kept.toString(StandardCharsets.UTF_8);
    }

    /** The names of all sub-commands. */
    static TreeSet<String> commands() throws ReflectiveOperationException {
        forgetCommands();
        MQAdminStartup.initCommand();
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        TreeSet<String> names = new TreeSet<>();
        ((List<?>) commands.get(null)).forEach(command -> names.add(((SubCommand) command).commandName()));
        return names;
    }

    /** What a sub-command that never ends has printed once a part of that is there. */
    String printsUntil(String part, String... words) throws Exception {
        return keeping(words, (run, kept) -> {
            Thread tool = new Thread(run, words[0]);
            tool.setDaemon(true);
            tool.start();
            Check.within(30, part + " printed by " + words[0], () -> kept.toString(StandardCharsets.UTF_8).contains(part));
            tool.interrupt();
            tool.join(120_000);
        });
    }

    /** The same for a sub-command that must not end with an exception. */
    String succeeds(String... words) {
        String printed = prints(words);
        Check.that(!printed.contains("Exception"), "mqadmin %s failed:%n%s", Arrays.toString(words), printed);
        return printed;
    }

    /** Cells of the lines that begin with this cell, split at blanks. */
    static List<List<String>> rows(String printed, String first) {
        return printed.lines().map(line -> List.of(line.trim().split("\\s+")))
            .filter(cells -> cells.get(0).equals(first)).toList();
    }

    /** The same in the order of their text, where the tool prints a hash table. */
    static List<List<String>> sortedRows(String printed, String first) {
        return rows(printed, first).stream().sorted(Comparator.comparing(Object::toString)).toList();
    }

    static List<String> row(String printed, String first) {
        List<List<String>> rows = rows(printed, first);
        Check.equal(1, rows.size(), "lines that begin with <%s> in:%n%s", first, printed);
        return rows.get(0);
    }

    /** The `name<separator>value` lines. */
    static Map<String, String> values(String printed, String separator) {
        Map<String, String> values = new TreeMap<>();
        printed.lines().filter(line -> line.contains(separator)).forEach(line -> {
            int at = line.indexOf(separator);
            values.put(line.substring(0, at).trim(), line.substring(at + separator.length()).trim());
        });
        return values;
    }
}
