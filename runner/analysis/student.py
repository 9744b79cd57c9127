"""The quantiles of Student's t, for any number of degrees of freedom.

    >>> round(student_quantile(0.95, 4), 3)
    2.776

Standard library only.
"""

import math
import statistics
from functools import lru_cache

#: The largest quantile of Student's t.
MAX_QUANTILE = 1e6


@lru_cache(maxsize=65536)
def student_quantile(confidence: float, dof: float) -> float:
    """Returns t with P(|T| <= t) = `confidence` for Student's t of `dof` degrees of freedom, which may be a fraction or
    infinite (2.776 for 95% and 4). At most MAX_QUANTILE."""
    t = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    if math.isinf(dof):
        return t
    low, high = t, MAX_QUANTILE
    for _ in range(100):  # Newton's method, which comes from below because the tail is convex; else halves
        excess = _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5) - (1 - confidence)
        low, high = (t, high) if excess > 0 else (low, t)
        density = _student_density(t, dof)  # zero far out, where only halving leads back
        following = t + excess / (2 * density) if density else math.inf
        if abs(following - t) <= 1e-12 * t:
            break
        t = following if low < following < high else (low + high) / 2
    return t


def _student_density(t: float, dof: float) -> float:
    scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(math.pi * dof) / 2
    return math.exp(scale - (dof + 1) / 2 * math.log1p(t * t / dof))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a, b) by its continued fraction (NIST Digital Library of
    Mathematical Functions, 8.17.22), where that converges fast, or that of 1 - x."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    fraction = 1.0
    for m in range(20 + 4 * math.isqrt(math.ceil(max(a, b))), 0, -1):  # it takes of the order of the root of a or b
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    first = 1 - (a + b) * x / ((a + 1) * fraction)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * first)
