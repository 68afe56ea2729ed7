"""Breadth-first search and PageRank on a Kronecker (R-MAT) graph: SciPy's csgraph and sparse products, single-threaded. An
operation is an edge traversed."""

import console
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

EDGES_PER_VERTEX = 16
# An entry of the matrix, and what is kept per vertex, shared by its edges.
EDGE_BYTES = 12 + 64 // EDGES_PER_VERTEX
CHUNK = 1 << 18
DAMPING = 0.85
# Graph500's A, B, C, D are .57, .19, .19, .05, here in 256ths: where a bit of an edge's source is 1, and where the same
# bit of its target is, given that of the source.
SOURCE_ONE = 61
TARGET_ONE = np.array([64, 53], dtype=np.uint8)


def bits(count, below, rng):
    return rng.integers(0, 256, count, dtype=np.uint8) < below


def kronecker(scale, edges, rng):
    """Its adjacency matrix by rows: the sources decide how many edges each vertex has, then targets are drawn for them."""
    vertices = 1 << scale
    degrees = np.zeros(vertices, dtype=np.int64)
    for at in range(0, edges, vertices):
        count = min(vertices, edges - at)
        sources = np.zeros(count, dtype=np.int32)
        for level in range(scale):
            sources |= bits(count, SOURCE_ONE, rng).astype(np.int32) << level
        degrees += np.bincount(sources, minlength=vertices)
    starts = np.zeros(vertices + 1, dtype=np.int32)
    np.cumsum(degrees, out=starts[1:])
    targets = np.empty(edges, dtype=np.int32)
    for at in range(0, edges, CHUNK):
        places = np.arange(at, min(at + CHUNK, edges), dtype=np.int32)
        sources = (np.searchsorted(starts, places, side="right") - 1).astype(np.int32)
        chunk = np.zeros(len(places), dtype=np.int32)
        for level in range(scale):
            chunk |= bits(len(places), TARGET_ONE[(sources >> level) & 1], rng).astype(np.int32) << level
        targets[at : at + len(places)] = chunk
    return csr_matrix((np.ones(edges), targets, starts), shape=(vertices, vertices), copy=False), degrees


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
        # Along the edges backwards: the ranks of the graph with its edges turned round.
        ranks = DAMPING * (graph @ (ranks / np.maximum(degrees, 1))) + (1 - DAMPING) / vertices
        console.worked(traversed + edges)


console.run(program)
