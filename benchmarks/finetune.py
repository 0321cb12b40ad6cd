"""Fine-tuning on SST-2: examples a second beside the `transformers` Trainer, at the same batch size, and both scores.

Both begin with the same weights, take the same number of steps over the same examples, at the same rates, and read
texts that are in pieces already. The Trainer pads each batch to its longest row, as it does by default. What is timed
is training alone; dev is scored afterwards.

    python benchmarks/finetune.py --data data/tasks [-m MODEL] [--device cpu] [--batch 8 64] [--examples 2000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import machine, table

from polyseme.bundle import load_bundle
from polyseme.convert.hub import find_model
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.metrics.task_metrics import measure
from polyseme.tasks.items import TaskData
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.finetune_settings import FinetuneSettings, chosen
from polyseme.transfer.finetune_task import labels_in
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.train_seed import learn, take_turns
from polyseme.transfer.train_step import autocast


def ours(data: TaskData, model: Path, n_examples: int, batch: int, device: str, seed: int) -> tuple[float, float]:
    """Examples a second, and accuracy on dev."""
    train, dev = data.splits["train"][:n_examples], data.splits["dev"]
    torch.manual_seed(seed)
    bundle = load_bundle(model)
    settings = chosen(
        FinetuneSettings(epochs=1, batch_size=batch, learning_rate=1e-4), bundle.config, kind="classify",
        n_train=len(train),
        pooler=True, starts=True,
    ).settings  # fmt: skip
    labels = tuple(label for label in data.labels if label in labels_in(train, kind="classify", multi=False))
    fitted = build_task_model(
        bundle, kind="classify", head="linear", readout="pooled", max_pieces=128, head_settings={"labels": labels}
    ).to(device)
    ready, held = prepare(fitted, train, learning=True), prepare(fitted, dev, learning=False)
    bf16 = torch.device(device).type == "cuda"
    _wait(device)
    started = time.perf_counter()
    run = partial(learn, fitted, ready, lambda _: {"none": 0.0}, settings, seed, bf16=bf16)
    take_turns([run], abreast=1, device=fitted.device)
    _wait(device)
    seconds = time.perf_counter() - started
    found = judge(fitted, held, autocast=autocast(torch.device(device), bf16=bf16))
    score = measure(["accuracy"], [item.gold for item in dev], [each.answer for each in found])["accuracy"]
    return len(train) / seconds, score


def theirs(data: TaskData, model: Path, n_examples: int, batch: int, device: str, seed: int) -> tuple[float, float]:
    import transformers

    transformers.logging.set_verbosity_error()
    train, dev = data.splits["train"][:n_examples], data.splits["dev"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    number = {label: place for place, label in enumerate(data.labels)}

    def encoded(items: Any) -> list[dict[str, Any]]:
        read = tokenizer([item.text for item in items], truncation=True, max_length=128)
        return [
            {**{name: values[row] for name, values in read.items()}, "labels": number[item.gold]}
            for row, item in enumerate(items)
        ]

    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=256,
            num_train_epochs=1,
            learning_rate=1e-4,
            warmup_steps=round(0.1 * -(-len(train) // batch)),
            weight_decay=0.01,
            bf16=device != "cpu",
            use_cpu=device == "cpu",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=device != "cpu",
            seed=seed,
        )
        transformers.set_seed(seed)
        made = transformers.AutoModelForSequenceClassification.from_pretrained(
            model, num_labels=len(number), dtype=torch.float32
        )
        trainer = transformers.Trainer(
            model=made,
            args=settings,
            train_dataset=encoded(train),  # type: ignore[arg-type]
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        _wait(device)
        started = time.perf_counter()
        trainer.train()
        _wait(device)
        seconds = time.perf_counter() - started
        found = trainer.predict(encoded(dev))  # type: ignore[arg-type]
    right = (found.predictions.argmax(-1) == found.label_ids).mean()
    return len(train) / seconds, float(right)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("-m", "--model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--examples", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-peer", action="store_true")
    asked = parser.parse_args()
    model = find_model(asked.model)
    data = read_benchmark("sst2", asked.data)
    n_examples = asked.examples or (1000 if asked.device == "cpu" else 20_000)
    runs = {"polyseme": ours} if asked.without_peer else {"polyseme": ours, "transformers": theirs}
    rows = []
    for batch in asked.batch:
        speeds: dict[str, list[float]] = {name: [] for name in runs}
        scores: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run(data, model, min(n_examples, 8 * batch), batch, asked.device, 0)
        for number in range(asked.rounds):
            for name, run in runs.items():
                speed, score = run(data, model, n_examples, batch, asked.device, number)
                speeds[name].append(speed)
                scores[name].append(score)
        mine = statistics.median(speeds["polyseme"])
        for name in runs:
            speed = statistics.median(speeds[name])
            score = 100 * statistics.median(scores[name])
            rows.append([str(batch), name, f"{speed:,.0f}", f"{mine / speed:.2f}", f"{score:.1f}"])
    packages = ["torch"] if asked.without_peer else ["torch", "transformers"]
    print(f"{model.parent.name}, {n_examples:,} examples of SST-2, {asked.rounds} rounds, median; {machine(*packages)}")
    print(table(["batch", "by", "examples/s", "polyseme is × as fast", "dev accuracy"], rows))


if __name__ == "__main__":
    main()
