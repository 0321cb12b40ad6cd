"""Parameters of the published sizes, and the rounded figures of the papers.

python benchmarks/parameters.py
"""

from __future__ import annotations

from measure import table
from model_sizes import SIZES

from polyseme.bundle import count_parameters


def main() -> None:
    """Count without allocating, and print the table."""
    rows = [
        [
            name,
            size.family,
            f"{size.layers} × {size.width}",
            f"{size.vocabulary:,}",
            f"{count_parameters(size.family, size.config, size.outputs):,}",
            size.paper,
        ]
        for name, size in SIZES.items()
    ]
    print(table(["size", "family", "layers × width", "vocabulary", "parameters", "paper"], rows))


if __name__ == "__main__":
    main()
