"""One LSTM encoder, pretrained by several objectives, and what it brings to a task: shared by `rival_objectives.py` and
`dai_le.py`.

The encoder is always the same: one LSTM that reads forwards, over a table of byte-level BPE pieces. A language model
(`language-model`) predicts the next piece with it. The other objectives are the translation objective over pairs of
texts, with a decoder that gets the encoder's last state and nothing else:

| objective | pairs |
|---|---|
| `translation` | a sentence and its translation |
| `autoencoder` | a sentence and itself (Dai and Le 2015) |
| `skip-thoughts` | a sentence and the one after it, and the one before it (Kiros et al. 2015) |

Skip-thoughts has one decoder for both neighbors instead of two: the first word of a target says which one it is.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tables import data_folder, machine, table

import polyseme
from polyseme.bundle import new_bundle
from polyseme.model_folder import load_bundle, save_bundle
from polyseme.text.sentences import split_sentences

Pairs = Sequence[tuple[str, str]]
RANDOM = "random"
OBJECTIVES = ("translation", "autoencoder", "skip-thoughts", "language-model")
FIGURES = {"trec": "accuracy", "imdb": "accuracy", "sst2": "accuracy"}
SETTINGS: dict[str, dict[str, Any]] = {"imdb": {"batch_size": 16, "max_pieces": 256}}
VOCABULARY = 8192
FRAMES = ("transformer", "lm")


def itself(sentences: Sequence[str]) -> Pairs:
    """The pairs of an autoencoder."""
    return [(sentence, sentence) for sentence in sentences]


def neighbors(documents: Sequence[Sequence[str]]) -> Pairs:
    """The pairs of skip-thoughts: of documents as lists of sentences, in their order.

    >>> neighbors([["a", "b"], ["c"]])
    [('a', '<next> b'), ('b', '<previous> a')]
    """
    pairs: list[tuple[str, str]] = []
    for sentences in documents:
        for number, sentence in enumerate(sentences):
            if number + 1 < len(sentences):
                pairs.append((sentence, f"<next> {sentences[number + 1]}"))
            if number:
                pairs.append((sentence, f"<previous> {sentences[number - 1]}"))
    return pairs


def sentences_of(texts: Sequence[str], words: int) -> list[list[str]]:
    """The sentences of the first texts that have so many words together, document by document."""
    documents: list[list[str]] = []
    for text in texts:
        if words <= 0:
            break
        sentences = [text[start:end].strip() for start, end in split_sentences(text)]
        sentences = [" ".join(sentence.split()) for sentence in sentences if sentence]
        words -= sum(len(sentence.split()) for sentence in sentences)
        documents.append(sentences)
    return documents


class Encoders:
    """Runs of one set of texts, which share a tokenizer and the shape of the encoder."""

    def __init__(self, folder: Path, *, objectives: Sequence[str], budget: str, width: int, device: str) -> None:
        self.folder, self.objectives = folder, objectives
        self.budget, self.width, self.device = budget, width, device
        folder.mkdir(parents=True, exist_ok=True)

    def tokenizers(self, lines: Sequence[str]) -> None:
        """Trained once, on these lines: the same pieces with the specials of two stacks, and of a language model."""
        texts = self.folder / "lines.txt"
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for frame in FRAMES:
            polyseme.build_corpus(
                texts,
                output=self.folder / frame,
                tokenizer="byte-bpe",
                frame=frame,
                vocab_size=VOCABULARY,
                documents="line",
                reuse=True,
            )

    def pretrain(self, objective: str, *, lines: Sequence[str] = (), pairs: Pairs = ()) -> None:
        """Train the encoder on lines (a language model) or pairs, if the objective is one of those to be run."""
        if objective not in self.objectives:
            return
        files = {"source": [one for one, _ in pairs], "target": [other for _, other in pairs], "lines": lines}
        paths = {}
        for name, content in files.items():
            if content:
                paths[name] = self.folder / f"{objective}.{name}.txt"
                paths[name].write_text("\n".join(content) + "\n", encoding="utf-8")
        shape = {"n_layers": 1, "token_width": self.width, "width": self.width}
        tokenizer = self.folder / FRAMES[0 if pairs else 1] / "tokenizer"
        common: dict[str, Any] = {"budget": self.budget, "tokenizer": tokenizer, "device": self.device, "force": True}
        if pairs:
            stacks = {"reads": "forwards", "memory": "state", "decoder_layers": 1}
            polyseme.pretrain(
                source=paths["source"],
                target=paths["target"],
                output=self.run(objective),
                recipe="seq2seq",
                shape={**shape, **stacks},
                **common,
            )
        else:
            dropout = {"dropout_rate": 0.3, "embedding_dropout_rate": 0.3}
            polyseme.pretrain(
                paths["lines"],
                output=self.run(objective),
                recipe="lstm-tiny",
                shape={**shape, **dropout},
                documents="line",
                **common,
            )

    def run(self, objective: str) -> Path:
        return self.folder / objective

    def random_start(self, like: str) -> None:
        """A model as that of an objective, with weights that nothing has trained."""
        trained = load_bundle(self.run(like))
        torch.manual_seed(0)
        fresh = new_bundle(trained.family, trained.config, list(trained.outputs), trained.tokenizer, tied=trained.tied)
        save_bundle(fresh, self.run(RANDOM), force=True)


def transfer(run: Path, task: str, *, frozen: bool, seeds: int, device: str, **chosen: Any) -> dict[str, Any]:
    """An encoder on a task: its top layer under a linear head, read out as [last; max; mean].

    `chosen` are options of `finetune`.
    """
    settings: dict[str, Any] = {"layer": "-1", "head": "linear", "readout": "concat", **SETTINGS.get(task, {})}
    settings |= {name: value for name, value in chosen.items() if value is not None}
    report = polyseme.finetune(
        task, data=data_folder(), model=run, frozen=frozen, stack="encoder", seeds=seeds, device=device, **settings
    )
    figure = FIGURES[task]
    values = {"dev": [each.dev[figure] for each in report.seeds]}
    values |= {split: [each.others[split][figure] for each in report.seeds] for split in report.seeds[0].others}
    return {
        "figures": values,
        "mean": {split: statistics.mean(each) for split, each in values.items()},
        "spread": {split: statistics.stdev(each) if len(each) > 1 else 0.0 for split, each in values.items()},
        "baseline": report.baseline[figure],
        "settings": report.settings,
        "machine": machine("torch"),
    }


def keep(results: Path, name: str, result: dict[str, Any]) -> None:
    """Write one result, and print its line."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {shown(result)} on dev (majority {100 * result['baseline']:.1f})", flush=True)


def shown(result: dict[str, Any] | None, split: str = "dev") -> str:
    """Mean and standard deviation, in percent."""
    if result is None or split not in result["mean"]:
        return ""
    return f"{100 * result['mean'][split]:.1f} ± {100 * result['spread'][split]:.1f}"


def markdown(results: Path, rows: Sequence[str], columns: Sequence[str]) -> str:
    """What was measured, one line per row: files are named COLUMN.ROW.json."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("*.json"))}
    lines = [[row, *(shown(found.get(f"{column}.{row}")) for column in columns)] for row in rows]
    return table(["", *columns], [line for line in lines if any(line[1:])])
