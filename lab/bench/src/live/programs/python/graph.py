"""Breadth-first search and PageRank on a Kronecker (R-MAT) graph, single-threaded.

It uses SciPy's csgraph and sparse products. An operation is the traversal of an edge."""

import console
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

EDGES_PER_VERTEX = 16
# An entry of the matrix, and the data per vertex divided by its edges.
EDGE_BYTES = 12 + 64 // EDGES_PER_VERTEX
# Edges generated at a time.
CHUNK = 1 << 18
DAMPING = 0.85
# Graph500's A, B, C, D: probabilities that the same bit of an edge's source and target is 00, 01,
# 10, 11.
A, B, C, D = 0.57, 0.19, 0.19, 0.05


def kronecker(scale, edges, rng):
    """The adjacency matrix of a graph with about `edges` edges, row by row.

    First it draws the number of edges of each vertex, which the vertex's bits decide. Then it draws
    their targets, bit by bit."""
    vertices = 1 << scale
    expected = np.full(1, float(edges))
    for _ in range(scale):
        expected = np.concatenate([expected * (A + B), expected * (C + D)])
    degrees = rng.poisson(expected)
    starts = np.zeros(vertices + 1, dtype=np.int32)
    np.cumsum(degrees, out=starts[1:])
    targets = np.zeros(starts[-1], dtype=np.int32)
    # Where a bit of the target is 1, in 256ths: it depends on the same bit of the source.
    at_zero, at_one = round(256 * B / (A + B)), round(256 * D / (C + D))
    first = 0
    while first < vertices:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + CHUNK)) - 1)
        sources = np.repeat(np.arange(first, last, dtype=np.int32), degrees[first:last])
        chunk = targets[starts[first] : starts[last]]
        for level in range(scale):
            bit = (sources >> level).astype(np.uint8) & 1
            ones = rng.integers(0, 256, len(sources), dtype=np.uint8) < at_zero - bit * (at_zero - at_one)
            chunk |= ones.astype(np.int32) << level
        first = last
    return csr_matrix((np.ones(len(targets)), targets, starts), shape=(vertices, vertices), copy=False), degrees


def program(console, mib):
    edges = (mib << 20) // EDGE_BYTES
    scale = max(8, int(np.log2(edges / EDGES_PER_VERTEX)))
    rng = np.random.default_rng(1)
    graph, degrees = kronecker(scale, edges, rng)
    vertices = 1 << scale
    sources = np.flatnonzero(degrees)
    ranks = np.full(vertices, 1.0 / vertices)
    console.ready()
    while True:
        reached = breadth_first_order(graph, int(rng.choice(sources)), return_predecessors=False)
        traversed = int(degrees[reached].sum())
        # Backwards along the edges: the ranks of the graph with reversed edges.
        ranks = DAMPING * (graph @ (ranks / np.maximum(degrees, 1))) + (1 - DAMPING) / vertices
        console.worked(traversed + graph.nnz)


console.run(program)
