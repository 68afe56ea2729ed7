import java.util.Arrays;
import java.util.HashMap;

/**
 * A cache in the heap of a JVM that is filled, mostly emptied, and filled again with values of another
 * size. It speaks the line protocol of HawkEye's workloads: events as JSON on standard output, "go" on
 * standard input.
 */
public final class Churn {
    private static final long LOOK_UPS_PER_MIB = 20_000;
    private static final int DELETED_PERCENT = 85;
    private static final int[] SMALL = {512, 1536};
    private static final int[] LARGE = {8 << 10, 64 << 10};

    private final HashMap<Integer, byte[]> values = new HashMap<>();
    private int[] keys = new int[1024];
    private int count;
    private int nextKey;
    private long bytes;
    private long operations;
    private long random = 1;

    private int below(int bound) {
        random = random * 6364136223846793005L + 1442695040888963407L;
        return (int) (((random >>> 32) * bound) >>> 32);
    }

    private void fill(long until, int[] sizes) {
        while (bytes < until) {
            byte[] value = new byte[sizes[0] + below(sizes[1] - sizes[0])];
            Arrays.fill(value, (byte) (nextKey | 1));
            values.put(nextKey, value);
            if (count == keys.length) {
                keys = Arrays.copyOf(keys, 2 * count);
            }
            keys[count++] = nextKey++;
            bytes += value.length;
            operations++;
        }
    }

    private void lookUp(long times) {
        for (long i = 0; i < times; i++) {
            int key = keys[below(count)];
            byte[] value = values.get(key);
            if (value[below(value.length)] != (byte) (key | 1)) {
                throw new IllegalStateException("the value of key " + key + " is wrong");
            }
        }
        operations += times;
    }

    private void deleteMost() {
        int kept = 0;
        for (int i = 0; i < count; i++) {
            if (below(100) >= DELETED_PERCENT) {
                keys[kept++] = keys[i];
                continue;
            }
            bytes -= values.remove(keys[i]).length;
            operations++;
        }
        count = kept;
    }

    /**
     * Arguments: MiB of values, number of deletions, milliseconds between deletion and refill. It is
     * ready with half of the values.
     */
    public static void main(String[] arguments) throws Exception {
        long all = Long.parseLong(arguments[0]) << 20;
        int deletions = Integer.parseInt(arguments[1]);
        long pauseMs = Long.parseLong(arguments[2]);
        long lookUps = (all >> 20) * LOOK_UPS_PER_MIB;
        Churn cache = new Churn();
        cache.fill(all / 2, SMALL);
        System.out.println("{\"event\":\"ready\",\"pid\":" + ProcessHandle.current().pid() + ",\"start\":0,\"bytes\":"
                + cache.bytes + ",\"hot_start\":0,\"huge_bytes\":0,\"execs\":0}");
        if (System.in.read() < 0) {
            return;
        }
        long begun = System.nanoTime();
        long before = cache.operations;
        cache.fill(all, SMALL);
        cache.lookUp(lookUps);
        for (int n = 0; n < deletions; n++) {
            cache.deleteMost();
            cache.lookUp(lookUps / 4);
            Thread.sleep(pauseMs);
            cache.fill(all, n % 2 == 0 ? LARGE : SMALL);
            cache.lookUp(lookUps);
        }
        double workedS = (System.nanoTime() - begun) / 1e9 - deletions * pauseMs / 1e3;
        System.out.println("{\"event\":\"finished\",\"elapsed_s\":" + workedS + ",\"accesses\":"
                + (cache.operations - before) + "}");
    }
}
