"""A program's end of HawkEye's line protocol.

The program writes events as JSON to standard output, and reads "go", "stop", "rss" and "quit" from
standard input. The end of standard input ends the program."""

import json
import os
import sys
import threading
import time

REPORT_S = 0.02


def _say(event, **fields):
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def _resident(field):
    with open("/proc/self/smaps_rollup") as rollup:
        return sum(int(line.split()[1]) << 10 for line in rollup if line.startswith(field + ":"))


class Console:
    """Counts the program's operations, and pauses it on request."""

    def __init__(self):
        self._changed = threading.Condition()
        self._going = False
        self._asked = 0
        self._operations = self._reported = 0
        self._begun = self._reported_at = time.monotonic()

    def ready(self):
        """Reports that all data is present, and waits for the request to go."""
        threading.Thread(target=self._listen, daemon=True).start()
        rss = _resident("Rss")
        _say("ready", pid=os.getpid(), start=0, bytes=rss, hot_start=0, huge_bytes=0, execs=0)
        self._pause()

    def worked(self, operations):
        """Counts operations; call it at least a few times a second."""
        self._operations += int(operations)
        now = time.monotonic()
        if now - self._reported_at >= REPORT_S:
            per_s = (self._operations - self._reported) / (now - self._reported_at)
            elapsed_s = now - self._begun
            _say("rate", elapsed_s=elapsed_s, accesses=self._operations, accesses_per_s=per_s)
            self._reported, self._reported_at = self._operations, now
        self._pause()

    def finished(self, elapsed_s, operations):
        """Reports a fixed amount of work, after which the program ends."""
        _say("finished", elapsed_s=elapsed_s, accesses=operations)

    def _pause(self):
        with self._changed:
            while True:
                for _ in range(self._asked):
                    _say("rss", rss_bytes=_resident("Rss"), huge_bytes=_resident("AnonHugePages"))
                self._asked = 0
                if self._going:
                    return
                self._changed.wait()

    def _listen(self):
        for line in sys.stdin:
            request = line.strip()
            if request == "quit":
                break
            with self._changed:
                if request == "rss":
                    self._asked += 1
                else:
                    self._going = request == "go"
                self._changed.notify()
        os._exit(0)


def run(program):
    """Runs program(console, mib) with the argument of the command line, and reports errors as events."""
    try:
        program(Console(), int(sys.argv[1]))
    except Exception as error:  # The parent process wants a sentence, not a traceback.
        _say("error", message=f"{type(error).__name__}: {error}")
        sys.exit(1)
