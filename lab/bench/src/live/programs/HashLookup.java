import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/**
 * Looks random keys up in a large hash map of longs, and reports its rate. It speaks the line protocol
 * of HawkEye's workloads: events as JSON on standard output; "go", "stop" and "quit" on standard
 * input. The end of standard input ends it.
 */
public final class HashLookup {
    private static final int BATCH = 8192;
    private static final long REPORT_NS = 20_000_000;

    /** Open addressing with linear probing; key and value side by side, 0 for an empty slot. Half full. */
    private final long[] slots;
    private final int mask;
    private final int entries;
    /** A tenth of the entries; its entries from `cold` on are hot, so hot entries lie in ten places. */
    private final int stretch;
    private final int cold;
    private final int hotQuestionsPercent;

    private volatile boolean going;

    private HashLookup(int slotCount, int hotKeysPercent, int hotQuestionsPercent) {
        slots = new long[2 * slotCount];
        mask = slotCount - 1;
        entries = slotCount / 2;
        stretch = entries / 10;
        cold = stretch - Math.max(1, (int) ((long) stretch * hotKeysPercent / 100));
        this.hotQuestionsPercent = hotQuestionsPercent;
        for (int i = 0; i < entries; i++) {
            put(key(i), i);
        }
    }

    /** The key of entry i; never 0. */
    private static long key(int i) {
        return i + 1L;
    }

    /**
     * As java.util.HashMap does with a Long, except that it leaves room for a neighbour: consecutive
     * keys have consecutive places.
     */
    private int home(long key) {
        return (int) (2 * key) & mask;
    }

    private void put(long key, long value) {
        int slot = home(key);
        while (slots[2 * slot] != 0) {
            slot = (slot + 1) & mask;
        }
        slots[2 * slot] = key;
        slots[2 * slot + 1] = value;
    }

    private long get(long key) {
        int slot = home(key);
        while (slots[2 * slot] != key) {
            if (slots[2 * slot] == 0) {
                return -1;
            }
            slot = (slot + 1) & mask;
        }
        return slots[2 * slot + 1];
    }

    private static long next(long random) {
        return random * 6364136223846793005L + 1442695040888963407L;
    }

    private static int below(long random, int bound) {
        return (int) (((random >>> 32) * bound) >>> 32);
    }

    /** Looks up count random keys; returns the state of the random numbers. */
    private long lookUp(long random, int count) {
        for (int i = 0; i < count; i++) {
            random = next(random);
            boolean hot = cold == 0 || below(random, 100) < hotQuestionsPercent;
            random = next(random);
            int entry = hot ? cold + below(random, stretch - cold) : below(random, cold);
            random = next(random);
            entry += below(random, 10) * stretch;
            if (get(key(entry)) != entry) {
                throw new IllegalStateException("entry " + entry + " is not in the map");
            }
        }
        return random;
    }

    private static void say(String event) {
        System.out.println(event);
        if (System.out.checkError()) {
            System.exit(1);
        }
    }

    private void listen() {
        try {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
                synchronized (this) {
                    going = line.equals("go");
                    notifyAll();
                }
            }
            System.exit(0);
        } catch (IOException error) {
            System.exit(1);
        }
    }

    private synchronized void awaitGo() throws InterruptedException {
        while (!going) {
            wait();
        }
    }

    private void run() throws InterruptedException {
        Thread listener = new Thread(this::listen);
        listener.setDaemon(true);
        listener.start();
        long random = 1;
        long lookups = 0;
        long begun = System.nanoTime();
        while (true) {
            awaitGo();
            long reportedAt = System.nanoTime();
            long reported = lookups;
            while (going) {
                random = lookUp(random, BATCH);
                lookups += BATCH;
                long now = System.nanoTime();
                if (now - reportedAt >= REPORT_NS) {
                    say("{\"event\":\"rate\",\"elapsed_s\":" + (now - begun) / 1e9 + ",\"accesses\":" + lookups
                            + ",\"accesses_per_s\":" + (lookups - reported) * 1e9 / (now - reportedAt) + "}");
                    reportedAt = now;
                    reported = lookups;
                }
            }
        }
    }

    /**
     * Arguments: size of the map in MiB, a power of two up to 8192; the share of hot keys, the last of
     * each tenth, in per cent; the share of lookups of hot keys, in per cent.
     */
    public static void main(String[] arguments) throws InterruptedException {
        long bytes = Long.parseLong(arguments[0]) << 20;
        HashLookup map = new HashLookup(
                (int) (bytes / 16), Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
        say("{\"event\":\"ready\",\"pid\":" + ProcessHandle.current().pid() + ",\"start\":0,\"bytes\":" + bytes
                + ",\"hot_start\":0,\"huge_bytes\":0,\"execs\":0}");
        map.run();
    }
}
