"""Conjugate gradients on a random sparse matrix, as NPB's cg: SciPy's solver, single-threaded.

An operation is the multiplication of a matrix entry."""

import console
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg

PAIRINGS = 16
BLOCKS = 32
# Bytes of a row: its entries (8 + 4 bytes each) and its share of the solver's vectors.
ROW_BYTES = (PAIRINGS + 1) * 12 + 4 + 7 * 8


def random_matrix(n, rng):
    """Blocks of rows of a symmetric and positive definite matrix.

    Its diagonal outweighs the entries of random pairings of rows."""
    rows = n // BLOCKS
    parts = [slice(block * rows, (block + 1) * rows) for block in range(BLOCKS)]
    # Separate arrays, because SciPy copies a part of a larger array.
    indices = [np.empty((rows, PAIRINGS + 1), dtype=np.int32) for _ in parts]
    data = [np.empty((rows, PAIRINGS + 1)) for _ in parts]
    for part, columns, entries in zip(parts, indices, data):
        columns[:, 0], entries[:, 0] = np.arange(part.start, part.stop), PAIRINGS * 1.01
    partner = np.empty(n, dtype=np.int32)
    for pairing in range(1, PAIRINGS + 1):
        order = rng.permutation(n).astype(np.int32)
        partner[order[0::2]] = order[1::2]
        partner[order[1::2]] = order[0::2]
        for part, columns, entries in zip(parts, indices, data):
            columns[:, pairing], entries[:, pairing] = partner[part], -1.0 if pairing % 2 else 1.0
    starts = np.arange(rows + 1, dtype=np.int32) * (PAIRINGS + 1)
    blocks = [
        csr_matrix((entries.reshape(-1), columns.reshape(-1), starts), shape=(rows, n), copy=False)
        for columns, entries in zip(indices, data)
    ]
    return parts, blocks


def program(console, mib):
    n = (mib << 20) // ROW_BYTES // (2 * BLOCKS) * (2 * BLOCKS)
    rng = np.random.default_rng(1)
    parts, blocks = random_matrix(n, rng)

    def multiply(x):
        y = np.empty(n)
        for part, block in zip(parts, blocks):
            y[part] = block @ x.reshape(n)
            console.worked(block.nnz)
        return y

    matrix = LinearOperator((n, n), matvec=multiply, dtype=np.float64)
    console.ready()
    while True:
        wanted = rng.random(n)
        _, failed = cg(matrix, wanted, tol=1e-8, maxiter=1000)
        if failed:
            raise ArithmeticError(f"no solution within {failed} iterations")


console.run(program)
