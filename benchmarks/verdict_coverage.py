"""Coverage of the intervals and error rates of the verdicts over many designs, with known truth.

    python benchmarks/verdict_coverage.py [--repeats 20000]

Some minutes on one core; writes lines for docs/verdicts.md to standard output.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "reporting"))

from verdict_simulation import Design, coverage, decided_wrongly


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000)
    repeats = parser.parse_args().repeats
    results = []
    for seeds, documents, share, interaction, skewed in product(
        (3, 4, 5, 10, 20), (30, 300), (0.0, 0.1, 1.0, 9.0), (0.0, 1.0, 5.0), (False, True)
    ):
        design = Design(seeds, documents, share, interaction, skewed)
        results.append((coverage(design, repeats), design))
        print(f"{results[-1][0]:.3f}  {design}", flush=True)
    print(f"coverage: {min(results)[0]:.3f} to {max(results)[0]:.3f} over {len(results)} designs")
    for test, seeds in product(("difference", "equivalence", "noninferiority"), (3, 5, 10)):
        rate = decided_wrongly(Design(seeds, 60, 0.5, 1.0, False), test, 0.05, repeats)
        print(f"{rate:.3f}  wrong verdicts, {test}, {seeds} seeds")


if __name__ == "__main__":
    main()
