"""Embed a Parquet file with Ray Data: a worker loads the model once and takes batch after batch.

    pip install 'polyseme[ray]'
    python examples/ray_embed.py reviews.parquet vectors/ --field text -m path/to/model

Here on a cluster of two workers on this machine; with the address of another (`ray.init("auto")`), on all of it.
"""

from __future__ import annotations

import argparse

import ray

from polyseme.arrow_batches import EmbedBatches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--field", default="text")
    parser.add_argument("-m", "--model")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()

    ray.init(num_cpus=given.workers + 1, include_dashboard=False)
    vectors = (
        ray.data.read_parquet(given.source)
        .repartition(4 * given.workers)
        .map_batches(
            EmbedBatches,
            fn_constructor_kwargs={"model": given.model, "field": given.field, "device": "cpu"},
            batch_format="pyarrow",
            batch_size=1024,
            concurrency=given.workers,
        )
    )
    vectors.write_parquet(given.output)
    ray.shutdown()


if __name__ == "__main__":
    main()
