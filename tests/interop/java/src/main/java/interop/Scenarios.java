package interop;

import java.util.ArrayList;
import java.util.List;

/** The list that each file of scenarios adds to. */
final class Scenarios {
    final List<Scenario> all = new ArrayList<>();
    private String suite = "everyday";

    /** The suite that the following scenarios belong to. */
    Scenarios suite(String name) {
        suite = name;
        return this;
    }

    void add(String name, String holds, Scenario.Body body) {
        add(name, holds, 120, body);
    }

    void add(String name, String holds, int limitSeconds, Scenario.Body body) {
        all.add(new Scenario(name, suite, holds, limitSeconds, body));
    }
}
