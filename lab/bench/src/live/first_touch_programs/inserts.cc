// Inserts keys 0, 1, 2 ... as sparsehash's own time_hash_map does to measure growth.
#include <cstdint>
#include <cstdlib>
#include <sparsehash/dense_hash_map>

int main(int, char **arguments)
{
	const uint64_t inserts = strtoull(arguments[1], nullptr, 10);
	google::dense_hash_map<uint64_t, uint64_t> map;

	map.set_empty_key(UINT64_MAX);
	for (uint64_t key = 0; key < inserts; key++)
		map[key] = key;
	return map.size() == inserts ? 0 : 1;
}
