"""Embed a Parquet file with Spark: `mapInArrow` gives each partition's batches to `EmbedBatches`.

    pip install polyseme pyspark        # and Java 17
    python examples/spark_embed.py reviews.parquet vectors/ --field text -m path/to/model

This runs on the local machine with two workers; under `spark-submit --master …` on a cluster whose machines have
polyseme and the model. All columns are kept, the id among them: Spark promises no order of rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from polyseme.arrow_batches import EmbedBatches

COLUMNS = "words array<string>, start array<bigint>, end array<bigint>, vectors array<array<float>>"
TYPES = {"vectors": pa.list_(pa.list_(pa.float32()))}
"""Spark has no lists of a fixed length."""


def embedded(options: dict[str, Any], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    embed = EmbedBatches(**options)
    for batch in batches:
        table = embed(batch)
        schema = pa.schema([field.with_type(TYPES.get(field.name, field.type)) for field in table.schema])
        yield from table.cast(schema).to_batches()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--field", default="text")
    parser.add_argument("-m", "--model")
    parser.add_argument("--partitions", type=int, default=8)
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("polyseme")
        .config("spark.master", "local[2]")  # spark-submit's own wins
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1024")
        .getOrCreate()
    )
    texts = spark.read.parquet(options.source).repartition(options.partitions)
    schema = ", ".join([*(f"`{name}` {kind}" for name, kind in texts.dtypes), COLUMNS])
    embed = partial(embedded, {"model": options.model, "field": options.field, "device": "cpu"})
    texts.mapInArrow(embed, schema).write.parquet(options.output)
    spark.stop()


if __name__ == "__main__":
    main()
