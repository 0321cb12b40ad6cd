"""Dai and Le (2015): an LSTM classifier that begins with random weights, a language model, a sequence autoencoder.

    python experiments/dai_le.py run -o runs/ [--tasks trec imdb] [--budget 20epochs] [--seeds 5]
    python experiments/dai_le.py table

For each task the same LSTM is pretrained on the texts of its training data, without their labels, as a language model
and as an autoencoder, and then fine-tuned whole with `polyseme.finetune`; a third begins with random weights. 5 seeds,
mean and standard deviation. POLYSEME_DATA names the folder of the data; results are kept in
`experiments/results/dai_le/`. `--starts` runs some of them, so that several processes with output folders of their own
can share the work; `random` goes with `autoencoder`, whose shape it has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sentence_encoders import RANDOM, Encoders, itself, keep, markdown, transfer
from tables import data_folder

from polyseme.datasets.named_benchmarks import read_benchmark

RESULTS = Path(__file__).parent / "results" / "dai_le"
STARTS = (RANDOM, "language-model", "autoencoder")
TASKS = ("trec", "imdb")


def run(task: str, options: argparse.Namespace) -> None:
    """Pretrain on the texts of a task, and fine-tune from each start."""
    items = read_benchmark(task, data_folder()).splits["train"]
    texts = [" ".join((item.text or " ".join(item.words)).split()) for item in items][: options.limit]
    encoders = Encoders(
        options.output / task,
        objectives=options.starts,
        budget=options.budget,
        width=options.width,
        device=options.device,
    )
    encoders.tokenizers(texts)
    encoders.pretrain("language-model", lines=texts)
    encoders.pretrain("autoencoder", pairs=itself([" ".join(text.split()[: options.longest]) for text in texts]))
    if RANDOM in options.starts:
        encoders.random_start("autoencoder")
    for start in options.starts:
        result = transfer(
            encoders.run(start),
            task,
            frozen=False,
            seeds=options.seeds,
            device=options.device,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
        )
        keep(options.results, f"{task}.{start}", result)


def main() -> None:
    """Run tasks, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--budget", default="20epochs", help="of pretraining")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--longest", type=int, default=60, help="words of a text that an autoencoder reads and writes")
    parser.add_argument("--limit", type=int, help="texts to pretrain on, to try the script out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10, help="of fine-tuning; dev chooses among them")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of fine-tuning, for every start")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if RANDOM in options.starts and "autoencoder" not in options.starts:
        parser.error("random weights have the shape of the autoencoder: name both")
    if options.command == "run":
        for task in options.tasks:
            run(task, options)
    print(markdown(options.results, STARTS, TASKS))


if __name__ == "__main__":
    main()
