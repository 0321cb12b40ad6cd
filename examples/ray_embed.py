"""Embed in the middle of a pipeline of Ray Data: each worker loads the model once and embeds one batch after another.

    pip install 'polyseme[ray]' 'ray[data]'
    python examples/ray_embed.py reviews.parquet vectors/ --field text -m path/to/model

This starts two workers on the local machine; `ray.init("auto")` uses an existing cluster. All columns are kept, and
with `preserve_order` the rows are in the order of the input. To embed files and nothing else, `polyseme embed --ray`
does more: it resumes, survives workers, and writes every format.
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
    options = parser.parse_args()

    ray.init(num_cpus=options.workers + 1, include_dashboard=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    vectors = (
        ray.data.read_parquet(options.source)
        .repartition(4 * options.workers)
        .map_batches(
            EmbedBatches,
            fn_constructor_kwargs={"model": options.model, "field": options.field, "device": "cpu"},
            batch_format="pyarrow",
            batch_size=1024,
            concurrency=options.workers,
        )
    )
    vectors.write_parquet(options.output)
    ray.shutdown()


if __name__ == "__main__":
    main()
