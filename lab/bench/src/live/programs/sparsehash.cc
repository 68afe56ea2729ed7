// Looks random keys up in sparsehash's dense_hash_map, and reports its rate. It speaks the line
// protocol of HawkEye's workloads: events as JSON on standard output; "go", "stop" and "quit" on
// standard input. The end of standard input ends it.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sparsehash/dense_hash_map>
#include <string>
#include <thread>
#include <unistd.h>

static const uint64_t BATCH = 8192;
static const double REPORT_S = 0.02;

static std::mutex mutex;
static std::condition_variable changed;
static bool going;

static double now_s()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void listen()
{
	std::string line;
	while (std::getline(std::cin, line) && line != "quit") {
		std::lock_guard<std::mutex> lock(mutex);
		going = line == "go";
		changed.notify_all();
	}
	_exit(0);
}

// Waits for "go"; returns whether it had to wait.
static bool await_go()
{
	std::unique_lock<std::mutex> lock(mutex);
	const bool paused = !going;
	changed.wait(lock, [] { return going; });
	return paused;
}

static uint64_t random_state = 0x9e3779b97f4a7c15;

// xorshift64*
static uint64_t below(uint64_t bound)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (unsigned __int128)(random_state * 0x2545f4914f6cdd1d) * bound >> 64;
}

// Arguments: size of the table in MiB, a power of two; the share of hot keys, and the share of lookups
// of hot keys, in per cent.
int main(int, char **arguments)
{
	const uint64_t bytes = strtoull(arguments[1], nullptr, 10) << 20;
	const uint64_t hot_keys_percent = strtoull(arguments[2], nullptr, 10);
	const uint64_t hot_questions_percent = strtoull(arguments[3], nullptr, 10);
	const uint64_t buckets = bytes / 16;
	// A little less than what has it double its table. The library hashes numbers to themselves: with every
	// other one as a key, each has a bucket to itself and the keys go through the table in order.
	const uint64_t keys = buckets / 2 / 16 * 15;
	// The hot keys are the last of each tenth: in ten places of the table.
	const uint64_t stretch = keys / 10;
	const uint64_t cold = stretch - stretch * hot_keys_percent / 100;
	google::dense_hash_map<uint64_t, uint64_t> map;

	map.set_empty_key(UINT64_MAX);
	map.resize(keys);
	for (uint64_t i = 0; i < keys; i++)
		map[2 * i] = i;
	if (map.bucket_count() != buckets) {
		printf("{\"event\":\"error\",\"message\":\"the table has %zu buckets\"}\n", map.bucket_count());
		return 1;
	}
	std::thread(listen).detach();
	printf("{\"event\":\"ready\",\"pid\":%d,\"start\":0,\"bytes\":%ju,\"hot_start\":0,\"huge_bytes\":0,\"execs\":0}\n",
	       getpid(), (uintmax_t)bytes);
	fflush(stdout);

	const double begun = now_s();
	double reported_at = begun;
	uint64_t lookups = 0, reported = 0;
	while (true) {
		if (await_go()) {
			reported_at = now_s();
			reported = lookups;
		}
		for (uint64_t i = 0; i < BATCH; i++) {
			const bool hot = cold == 0 || below(100) < hot_questions_percent;
			const uint64_t in_stretch = hot ? cold + below(stretch - cold) : below(cold);
			const uint64_t key = below(10) * stretch + in_stretch;
			const auto found = map.find(2 * key);
			if (found == map.end() || found->second != key) {
				printf("{\"event\":\"error\",\"message\":\"key %ju is not in the map\"}\n", (uintmax_t)key);
				return 1;
			}
		}
		lookups += BATCH;
		const double now = now_s();
		if (now - reported_at < REPORT_S)
			continue;
		printf("{\"event\":\"rate\",\"elapsed_s\":%.9f,\"accesses\":%ju,\"accesses_per_s\":%.1f}\n", now - begun,
		       (uintmax_t)lookups, (lookups - reported) / (now - reported_at));
		if (fflush(stdout) != 0)
			return 1;
		reported_at = now;
		reported = lookups;
	}
}
