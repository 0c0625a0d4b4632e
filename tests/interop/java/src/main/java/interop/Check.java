package interop;

import java.util.Objects;
import java.util.concurrent.Callable;

/** Assertions whose messages name what was expected and what came. */
final class Check {
    /** Limits of waits are what an idle machine needs; one that has other work gets so many times as long. */
    static final int PATIENCE = 4;

    private Check() { }

    static void that(boolean holds, String what, Object... values) {
        if (!holds) {
            throw new AssertionError(values.length == 0 ? what : String.format(what, values));
        }
    }

    static void equal(Object expected, Object actual, String what, Object... values) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError(String.format(what, values) + ": expected <" + expected + ">, got <" + actual + ">");
        }
    }

    static void contains(String text, String part, String what) {
        if (!text.contains(part)) {
            throw new AssertionError(what + ": <" + part + "> is not in:\n" + text);
        }
    }

    /** Polls until the condition holds; the condition may throw while it does not hold yet. The limit is an idle machine's. */
    static void within(double idleSeconds, String what, Callable<Boolean> condition) throws Exception {
        double seconds = idleSeconds * PATIENCE;
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        Throwable last = null;
        do {
            try {
                if (condition.call()) {
                    return;
                }
                last = null;
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception | AssertionError e) {
                last = e;
            }
            Thread.sleep(25);
        } while (System.nanoTime() < deadline);
        throw new AssertionError("not within " + seconds + " s: " + what + (last == null ? "" : " (last: " + last + ")"), last);
    }

    /** Polls for a while that a value is what it was: there is no other sign of what must not happen. */
    static void stays(double seconds, Object expected, String what, Callable<?> value) throws Exception {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        do {
            equal(expected, value.call(), what);
            Thread.sleep(25);
        } while (System.nanoTime() < end);
    }

    /** The value of a call that must throw an exception of this type. */
    static <E extends Throwable> E refused(Class<E> type, String what, Callable<?> call) throws Exception {
        Object value;
        try {
            value = call.call();
        } catch (Throwable e) {
            if (type.isInstance(e)) {
                return type.cast(e);
            }
            throw new AssertionError(what + ": expected " + type.getSimpleName() + ", got " + e, e);
        }
        throw new AssertionError(what + ": expected " + type.getSimpleName() + ", got the answer " + value);
    }
}
