"""Fine-tuning on SST-2: examples per second beside the `transformers` Trainer, at the same batch size, and both scores.

All begin with the same weights, take the same number of steps over the same tokenized examples at the same learning
rate, and train without logging, saving or evaluation; dev is scored afterwards. Three peers:

- the Trainer with its defaults: rows in random order, each batch padded to its longest row, not compiled;
- the Trainer with rows grouped by length;
- the Trainer with rows grouped by length and `torch_compile=True` (on a GPU also with 2 loader workers). Its clock
  starts after the first steps (`--compile-steps`), so that compilation is not counted; it is left out where fewer than
  as many follow. All other clocks run from the first step; polyseme's includes the recording of CUDA graphs.

    POLYSEME_DATA=... python benchmarks/finetune.py [-m MODEL] [--device cpu] [--batch-size 8 64] [--examples 2000]
                                  [--peers trainer grouped compiled] [--rounds 3] [--dev 872] [--figures FILE]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import Figure, add_figures_option, data_folder, machine, need, publish, ratio, table

from polyseme.convert.hub import find_model
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.metrics.task_metrics import measure
from polyseme.model_folder import load_bundle
from polyseme.tasks.items import Item, TaskData
from polyseme.tasks.splits import evenly_spaced
from polyseme.transfer.build_task_model import build_task_model
from polyseme.transfer.default_settings import fill_settings
from polyseme.transfer.finetune_settings import FinetuneSettings
from polyseme.transfer.prepare_items import judge, prepare
from polyseme.transfer.seeds_abreast import take_turns
from polyseme.transfer.task_model import TaskConfig
from polyseme.transfer.train_seed import SeedTraining
from polyseme.transfer.train_step import autocast

PEERS = {
    "trainer": "Trainer, defaults",
    "grouped": "Trainer, grouped by length",
    "compiled": "Trainer, grouped by length, compiled",
}
FLOOR = 2.0
"""The least expected speed on a CPU, as a multiple of that of the Trainer with its defaults."""
LEARNING_RATE = 1e-4
MAX_PIECES = 128


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every route is timed on."""

    data: TaskData
    model: Path
    batch_size: int
    device: str
    train: Sequence[Item]
    compile_steps: int

    @property
    def n_steps(self) -> int:
        return -(-len(self.train) // self.batch_size)


def run_polyseme(job: Job, seed: int) -> tuple[float, float]:
    """Examples per second, and accuracy on dev."""
    dev = job.data.splits["dev"]
    torch.manual_seed(seed)
    bundle = load_bundle(job.model)
    settings = fill_settings(
        FinetuneSettings(epochs=1, batch_size=job.batch_size, learning_rate=LEARNING_RATE), bundle.config,
        kind="classify", n_train=len(job.train), pooler=True, starts=True,
    ).settings  # fmt: skip
    seen = {item.gold for item in job.train}
    labels = tuple(label for label in job.data.labels if label in seen)
    task_model = build_task_model(
        bundle,
        TaskConfig(kind="classify", readout="pooled", max_pieces=MAX_PIECES),
        "linear",
        head_settings={"labels": labels},
    ).to(job.device)
    train_rows, dev_rows = prepare(task_model, job.train, learning=True), prepare(task_model, dev, learning=False)
    bf16 = torch.device(job.device).type == "cuda"
    synchronize(job.device)
    started = time.perf_counter()
    training = partial(
        SeedTraining, model=task_model, train=train_rows, score=lambda _: {"none": 0.0}, settings=settings,
        seed=seed, bf16=bf16,
    )  # fmt: skip
    take_turns([lambda: training().run()], abreast=1, device=task_model.device)
    synchronize(job.device)
    seconds = time.perf_counter() - started
    predictions = judge(task_model, dev_rows, autocast=autocast(torch.device(job.device), bf16=bf16))
    score = measure(["accuracy"], [item.gold for item in dev], [each.answer for each in predictions])["accuracy"]
    return len(job.train) / seconds, score


def run_trainer(job: Job, seed: int, *, grouped: bool, compiled: bool) -> tuple[float, float]:
    """The same by the Trainer."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(job.model)
    number = {label: place for place, label in enumerate(job.data.labels)}
    on_cpu = job.device == "cpu"

    def encode(items: Sequence[Any]) -> list[dict[str, Any]]:
        encoded = tokenizer([item.text for item in items], truncation=True, max_length=MAX_PIECES)
        return [
            {**{name: values[row] for name, values in encoded.items()}, "labels": number[item.gold]}
            for row, item in enumerate(items)
        ]

    class Clock(transformers.TrainerCallback):
        """The time at the end of the last step that is not counted."""

        n_uncounted = job.compile_steps if compiled else 0
        started = 0.0

        def on_train_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, args: object, state: Any, control: object, **kwargs: object) -> None:
            if state.global_step == self.n_uncounted:
                synchronize(job.device)
                self.started = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        torch.compiler.reset()  # entries of earlier models would count against the limit on recompilations
        settings = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=job.batch_size,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            warmup_steps=round(0.1 * job.n_steps),
            weight_decay=0.01,
            bf16=not on_cpu,
            use_cpu=on_cpu,
            torch_compile=compiled,
            dataloader_num_workers=2 if compiled and not on_cpu else 0,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=not on_cpu,
            seed=seed,
            **(group_by_length(transformers.TrainingArguments) if grouped else {}),
        )
        transformers.set_seed(seed)
        classifier = transformers.AutoModelForSequenceClassification.from_pretrained(
            job.model, num_labels=len(number), dtype=torch.float32
        )
        clock = Clock()
        trainer = transformers.Trainer(
            model=classifier,
            args=settings,
            train_dataset=encode(job.train),  # type: ignore[arg-type]
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[clock],
        )
        trainer.train()
        synchronize(job.device)
        seconds = time.perf_counter() - clock.started
    n_counted = len(job.train) - clock.n_uncounted * job.batch_size
    return n_counted / seconds, accuracy(classifier, tokenizer, encode(job.data.splits["dev"]), job.device)


def group_by_length(arguments: type) -> dict[str, Any]:
    """The option by which a Trainer of this version groups rows by length."""
    if "train_sampling_strategy" in {field.name for field in fields(arguments)}:
        return {"train_sampling_strategy": "group_by_length"}
    return {"group_by_length": True}


@torch.inference_mode()
def accuracy(classifier: torch.nn.Module, tokenizer: Any, rows: list[dict[str, Any]], device: str) -> float:
    """Of the trained module itself, so that nothing is compiled for other shapes."""
    classifier.eval()
    n_right = 0
    ordered = sorted(rows, key=lambda row: len(row["input_ids"]))
    for start in range(0, len(ordered), 64):
        batch = tokenizer.pad(ordered[start : start + 64], return_tensors="pt").to(device)
        labels = batch.pop("labels")
        n_right += int((classifier(**batch).logits.argmax(-1) == labels).sum())
    return n_right / len(rows)


def figures_of(
    speeds: Mapping[str, Sequence[float]], scores: Mapping[str, Sequence[float]], batch_size: int, device: str
) -> list[Figure]:
    """The ratios to report, of the examples per second and the scores of each route in each round."""
    percent = {name: f"{100 * statistics.median(each):.1f}" for name, each in scores.items()}
    what = f"fine-tune, {'fp32' if device == 'cpu' else 'bf16'}, batch size {batch_size}"
    return [
        ratio(
            speeds, "polyseme", PEERS[peer], what=what, peer=PEERS[peer],
            floor=FLOOR if peer == "trainer" and device == "cpu" else None,
            note=f"accuracy on dev {percent['polyseme']} and {percent[PEERS[peer]]}",
        )
        for peer in PEERS
        if PEERS[peer] in speeds
    ]  # fmt: skip


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder that holds sst2/ (default: tasks/ in POLYSEME_DATA)")
    parser.add_argument("-m", "--model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--examples", type=int, help="default: 20,000 on a GPU, 1,000 on a CPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--dev", type=int, help="score at most so many items of dev, evenly spaced (default: all)")
    parser.add_argument(
        "--compile-steps", type=int, default=30, help="steps of the compiled Trainer before its clock starts"
    )
    add_figures_option(parser)
    options = parser.parse_args()
    if options.peers:
        need("transformers", "accelerate")
    model = find_model(options.model)
    data = read_benchmark("sst2", options.data or data_folder())
    data = replace(data, splits={**data.splits, "dev": evenly_spaced(data.splits["dev"], options.dev)})
    n_examples = options.examples or (1000 if options.device == "cpu" else 20_000)
    routes: dict[str, Callable[[Job, int], tuple[float, float]]] = {"polyseme": run_polyseme}
    for peer in options.peers:
        routes[PEERS[peer]] = partial(run_trainer, grouped=peer != "trainer", compiled=peer == "compiled")
    rows = []
    for batch_size in options.batch_size:
        # Whole batches only: a smaller last one would make the compiled Trainer compile once more.
        job = Job(
            data=data,
            model=model,
            batch_size=batch_size,
            device=options.device,
            train=data.splits["train"][: n_examples // batch_size * batch_size],
            compile_steps=options.compile_steps,
        )
        measured = dict(routes)
        if "compiled" in options.peers and job.n_steps < 2 * job.compile_steps:
            del measured[PEERS["compiled"]]
            print(
                f"Batch size {batch_size}: the compiled Trainer is left out. {job.n_steps} steps are too few to time "
                f"it after the first {job.compile_steps}; --examples {2 * job.compile_steps * batch_size} are enough."
            )
        speeds: dict[str, list[float]] = {name: [] for name in measured}
        scores: dict[str, list[float]] = {name: [] for name in measured}
        for seed in range(-1, options.rounds):  # the first round warms up
            for name, run in measured.items():
                speed, score = run(job, max(seed, 0))
                if seed >= 0:
                    speeds[name].append(speed)
                    scores[name].append(score)
        publish(figures_of(speeds, scores, batch_size, options.device), options.figures)
        medians = {name: statistics.median(each) for name, each in speeds.items()}
        rows += [
            [
                str(batch_size),
                name,
                f"{speed:,.0f}",
                f"{medians['polyseme'] / speed:.2f}",
                f"{100 * statistics.median(scores[name]):.1f}",
            ]
            for name, speed in medians.items()
        ]
    packages = ["torch", "transformers"] if options.peers else ["torch"]
    print(f"\n{model.parent.name}, {n_examples:,} examples of SST-2, medians of {options.rounds} alternating rounds")
    print(f"{machine(*packages)}; {'fp32' if options.device == 'cpu' else 'bf16'}\n")
    print(table(["batch size", "route", "examples/s", "polyseme is × as fast", "dev accuracy"], rows))


if __name__ == "__main__":
    main()
