package interop;

import java.io.File;
import java.util.concurrent.TimeUnit;

/**
 * The node under test: its name server's address, whose make it is, and the command that stops and starts it.
 * `java` is the reference, the released Java broker 5.3.1; where later releases answer otherwise, ours answers as they do.
 */
record Target(String nameServer, boolean isJava, String control) {

    static Target fromEnvironment() {
        String nameServer = System.getenv("NAMESRV");
        if (nameServer == null) {
            throw new IllegalArgumentException("NAMESRV must hold host:port of the name server");
        }
        return new Target(nameServer, "java".equals(System.getenv("INTEROP_TARGET")), System.getenv("INTEROP_CONTROL"));
    }

    /** The code of a request with a bad parameter: 29 since 5.3.2, 1 up to 5.3.1. */
    int invalidParameter() {
        return isJava ? 1 : 29;
    }

    boolean isControlled() {
        return control != null;
    }

    /** Runs the control command with this word: stop, start, restart, kill. */
    void control(String word) throws Exception {
        Process process = new ProcessBuilder("bash", "-c", control + " " + word)
            .redirectErrorStream(true).redirectOutput(new File("/dev/null")).start();
        if (!process.waitFor(600, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new AssertionError("`" + control + " " + word + "` did not end within 600 s");
        }
        Check.equal(0, process.exitValue(), "exit code of `%s %s`", control, word);
    }
}
