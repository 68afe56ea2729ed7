"""Multigrid on a three-dimensional Poisson problem, as NPB's mg: V-cycles in NumPy, single-threaded.

An operation is the smoothing of a grid point."""

import console
import numpy as np

SLAB = 4
OMEGA = 6.0 / 7.0
COARSEST = 4


class Level:
    """A grid of n points in each direction with zeros around it; h is the distance of two points."""

    def __init__(self, n):
        self.n, self.h2 = n, 1.0 / (n * n)
        shape = (n + 2, n + 2, n + 2)
        # Writes the arrays, so that their memory is present from the start.
        self.u, self.f, self.r = (np.full(shape, 0.0) for _ in range(3))

    def slabs(self):
        return [slice(at, min(at + SLAB, self.n + 1)) for at in range(1, self.n + 1, SLAB)]

    def residual(self, part):
        """r = f - A u in some planes."""
        u, inner = self.u, slice(1, -1)
        above, below = slice(part.start - 1, part.stop - 1), slice(part.start + 1, part.stop + 1)
        around = u[above, inner, inner] + u[below, inner, inner]
        around += u[part, :-2, inner]
        around += u[part, 2:, inner]
        around += u[part, inner, :-2]
        around += u[part, inner, 2:]
        around -= 6.0 * u[part, inner, inner]
        around /= self.h2
        around += self.f[part, inner, inner]
        self.r[part, inner, inner] = around

    def smooth(self, console):
        """A step of damped Jacobi."""
        for part in self.slabs():
            self.residual(part)
        for part in self.slabs():
            self.u[part] += OMEGA * self.h2 / 6.0 * self.r[part]
            console.worked((part.stop - part.start) * self.n * self.n)

    def restrict_to(self, coarse):
        """Means of two points in each direction."""
        for part in coarse.slabs():
            fine = slice(2 * part.start - 1, 2 * part.stop - 1)
            r = self.r[fine, 1:-1, 1:-1]
            r = r[0::2] + r[1::2]
            r = r[:, 0::2] + r[:, 1::2]
            coarse.f[part, 1:-1, 1:-1] = (r[:, :, 0::2] + r[:, :, 1::2]) / 8.0

    def correct_from(self, coarse):
        for part in coarse.slabs():
            fine = slice(2 * part.start - 1, 2 * part.stop - 1)
            u = coarse.u[part, 1:-1, 1:-1]
            for axis in range(3):
                u = np.repeat(u, 2, axis=axis)
            self.u[fine, 1:-1, 1:-1] += u


def cycle(levels, console):
    fine = levels[0]
    for _ in range(2):
        fine.smooth(console)
    if len(levels) > 1:
        for part in fine.slabs():
            fine.residual(part)
        fine.restrict_to(levels[1])
        levels[1].u[:] = 0.0
        cycle(levels[1:], console)
        fine.correct_from(levels[1])
    for _ in range(2):
        fine.smooth(console)


def residual_norm(level):
    return np.sqrt(sum(float(np.sum(np.square(level.r[part]))) for part in level.slabs()))


def program(console, mib):
    # Three arrays, and an eighth of them for each coarser grid.
    n = int(((mib << 20) * 7 / 8 / 24) ** (1 / 3)) // 16 * 16
    if n < 16:
        raise ValueError("it takes at least a MiB")
    levels = []
    while n >= COARSEST:
        levels.append(Level(n))
        if n % 2:
            break
        n //= 2
    rng = np.random.default_rng(1)
    fine = levels[0]
    for part in fine.slabs():
        shape = fine.f[part, 1:-1, 1:-1].shape
        fine.f[part, 1:-1, 1:-1] = rng.random(shape) - 0.5
    console.ready()
    while True:
        fine.u[:] = 0.0
        norms = []
        for _ in range(5):
            cycle(levels, console)
            norms.append(residual_norm(fine))
        if norms[-1] >= norms[0] / 2:
            raise ArithmeticError(f"five cycles bring the residual from {norms[0]} to {norms[-1]} only")


console.run(program)
