package interop;

/**
 * One named thing that a client does and what must come of it. `holds` quotes the behaviour that it pins down; the limit is an
 * idle machine's, see Check.PATIENCE.
 */
record Scenario(String name, String suite, String holds, int limitSeconds, Body body) {
    interface Body {
        void run(Bed bed) throws Exception;
    }
}
