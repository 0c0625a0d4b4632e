package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Runs scenarios against the node that NAMESRV names. Arguments: names of suites or scenarios; none means the everyday suite.
 * `--list` prints them. INTEROP_AT_ONCE sets how many run at the same time. Prints a line for each and a closing line,
 * and ends with 1 if one failed.
 */
public final class Main {
    private int passed;
    private int failed;
    private int skipped;

    private static List<Scenario> everything() throws Exception {
        Scenarios list = new Scenarios();
        ProducerScenarios.addTo(list);
        PushScenarios.addTo(list);
        GroupScenarios.addTo(list);
        FilterScenarios.addTo(list);
        PullScenarios.addTo(list);
        LitePullScenarios.addTo(list);
        QueryScenarios.addTo(list);
        RequestScenarios.addTo(list);
        TimerScenarios.addTo(list);
        RestartScenarios.addTo(list);
        ExchangeScenarios.addTo(list);
        DeliveryScenarios.addTo(list);
        LightScenarios.addTo(list);
        RefusalScenarios.addTo(list);
        StatementScenarios.addTo(list);
        TransactionScenarios.addTo(list);
        for (String release5 : List.of("interop.Release5Scenarios", "interop.Release533Scenarios", "interop.Release5RustScenarios",
            "interop.AdminScenarios", "interop.ToolScenarios")) {
            try {
                Class.forName(release5).getMethod("addTo", Scenarios.class).invoke(null, list);
            } catch (ClassNotFoundException e) {
                continue; // not compiled with the old client
            }
        }
        return list.all;
    }

    public static void main(String[] arguments) throws Exception {
        List<Scenario> all = everything();
        if (List.of(arguments).contains("--list")) {
            all.forEach(s -> System.out.printf("%-10s %-34s %s%n", s.suite(), s.name(), s.holds()));
            return;
        }
        List<String> wanted = arguments.length == 0 ? List.of("everyday") : List.of(arguments);
        TreeSet<String> known = new TreeSet<>();
        all.forEach(s -> {
            known.add(s.suite());
            known.add(s.name());
        });
        for (String word : wanted) {
            if (!known.contains(word)) {
                System.err.println("no suite or scenario is named " + word);
                System.exit(2);
            }
        }
        List<Scenario> chosen = all.stream()
            .filter(s -> wanted.contains(s.suite()) || wanted.contains(s.name())).toList();
        Main main = new Main();
        main.run(chosen);
        System.out.printf("suite %s: passed %d, failed %d, skipped %d%n",
            System.getenv().getOrDefault("INTEROP_SUITE", "java"), main.passed, main.failed, main.skipped);
        System.out.flush();
        Runtime.getRuntime().halt(main.failed == 0 ? 0 : 1);
    }

    private void run(List<Scenario> chosen) throws Exception {
        Target target = Target.fromEnvironment();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Bed.ANSWER_MS);
        admin.setNamesrvAddr(target.nameServer());
        admin.setInstanceName("admin");
        admin.start();
        Check.within(30, "a broker is registered at " + target.nameServer(),
            () -> !admin.examineBrokerClusterInfo().getBrokerAddrTable().isEmpty());
        int atOnce = Integer.parseInt(System.getenv().getOrDefault("INTEROP_AT_ONCE", "1"));
        ExecutorService lanes = Executors.newFixedThreadPool(atOnce);
        List<Future<?>> futures = new ArrayList<>();
        for (Scenario scenario : chosen) {
            futures.add(lanes.submit(() -> one(scenario, new Bed(scenario.name(), target, admin))));
        }
        for (Future<?> future : futures) {
            future.get();
        }
    }

    /** Runs one scenario on a thread of its own, so that one that hangs costs its limit and no more. */
    private void one(Scenario scenario, Bed bed) {
        ExecutorService runner = Executors.newSingleThreadExecutor(r -> {
            Thread thread = new Thread(r, scenario.name());
            thread.setDaemon(true);
            return thread;
        });
        long limitSeconds = (long) scenario.limitSeconds() * Check.PATIENCE;
        long started = System.nanoTime();
        Future<?> run = runner.submit(() -> {
            scenario.body().run(bed);
            return null;
        });
        Throwable fault = null;
        try {
            run.get(limitSeconds, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            StringBuilder where = new StringBuilder("still running after " + limitSeconds + " s at");
            Thread.getAllStackTraces().forEach((thread, frames) -> {
                if (thread.getName().equals(scenario.name())) {
                    for (StackTraceElement frame : frames) {
                        where.append("\n    ").append(frame);
                    }
                }
            });
            run.cancel(true);
            fault = new AssertionError(where.toString());
        } catch (Exception e) {
            fault = e.getCause() == null ? e : e.getCause();
        }
        runner.shutdownNow();
        report(scenario, fault, (System.nanoTime() - started) / 1e9);
        Thread closer = new Thread(bed::close, "closing " + scenario.name());
        closer.setDaemon(true);
        closer.start();
        try {
            closer.join(10_000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void report(Scenario scenario, Throwable fault, double seconds) {
        if (fault == null) {
            passed++;
            System.out.printf("ok    %-34s %5.1f s  %s%n", scenario.name(), seconds, scenario.holds());
        } else if (fault instanceof Skipped) {
            skipped++;
            System.out.printf("skip  %-34s %s%n", scenario.name(), fault.getMessage());
        } else {
            failed++;
            System.out.printf("FAIL  %-34s %5.1f s  %s%n", scenario.name(), seconds, scenario.holds());
            System.out.println("      " + fault.toString().replace("\n", "\n      "));
            for (StackTraceElement frame : fault.getStackTrace()) {
                if (frame.getClassName().startsWith("interop.") && !frame.getClassName().equals("interop.Check")) {
                    System.out.println("      at " + frame);
                }
            }
        }
        System.out.flush();
    }

    /** Thrown by a scenario that cannot run here; the message says why. */
    static final class Skipped extends RuntimeException {
        Skipped(String why) {
            super(why);
        }
    }
}
