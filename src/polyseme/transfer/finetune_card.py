"""The card of a fine-tuned model: its task, the data, the scores over all seeds, what it cost."""

from __future__ import annotations

from pathlib import Path

from polyseme import __version__
from polyseme.bundle import Bundle
from polyseme.convert.hub import HUB
from polyseme.files.atomic import AnyPath
from polyseme.model_card import CardContent, Figure, Use, model_card, table
from polyseme.packaged_models import model_name
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.finetune_report import FinetuneReport

SHOWN_LABELS = 20
ORIGINS = {"frozen": "A frozen encoder with a head", "tuned": "Fine-tuned", "distilled": "Distilled"}
"""What a model is, by the mode of its report."""


def task_card_of(report: FinetuneReport, bundle: Bundle | None, folder: AnyPath) -> str:
    """The card of a report's model, which is saved into a folder; without a bundle there is but a head."""
    kind = KINDS[report.kind]
    seeds = f"{len(report.seeds)} seed{'' if len(report.seeds) == 1 else 's'}"
    encoder = report.model if bundle is None else model_name(report.model)
    figures = [
        Figure(metric=metric, value=value, split=split)
        for split in report.splits
        for metric, value in (report.best.dev if split == "dev" else report.best.others[split]).items()
    ]
    return model_card(
        bundle,
        CardContent(
            title=Path(folder).resolve().name,
            origin=(
                f"{ORIGINS[report.mode]} for {report.task} ({report.kind}) by polyseme {__version__}, from {encoder}."
            ),
            use=Use(kind.hub_task, "polyseme predict new.txt -m {folder}", None),
            base_model=report.model.removeprefix(HUB) if report.model.startswith(HUB) else None,
            dataset=report.task,
            figures=figures,
            sections=[
                ("Data", _data(report)),
                ("Training", _training_lines(report, seeds)),
                ("Cost", "\n".join(f"- {line}" for line in report.ledger.lines())),
                ("Scores", _scores(report)),
            ],
        ),
    )


def _data(report: FinetuneReport) -> str:
    sizes = ", ".join(f"{n:,} {split}" for split, n in report.sizes.items())
    sampled = f" Samples of the published splits: {', '.join(report.sampled)}." if report.sampled else ""
    labels = ", ".join(f"`{label}`" for label in report.labels[:SHOWN_LABELS])
    more = f" and {len(report.labels) - SHOWN_LABELS:,} more" if len(report.labels) > SHOWN_LABELS else ""
    named = f" Labels: {labels}{more}." if labels else ""
    return f"{report.task}: {sizes} items.{sampled}{named} Its license is not known here: add it before publishing."


def _training_lines(report: FinetuneReport, seeds: str) -> str:
    settings = [f"- {name}: {value}" for name, value in report.settings.items() if value is not None]
    return f"{seeds}; the weights of seed {report.best_seed} are here, the best on dev.\n\n" + "\n".join(settings)


def _scores(report: FinetuneReport) -> str:
    many = len(report.seeds) > 1
    rows = []
    for split in report.splits:
        ours = report.best.dev if split == "dev" else report.best.others[split]
        for metric, summary in report.split(split).items():
            baseline = report.baseline.get(metric) if split == "dev" else None
            row = [f"{split}, a sample" if split in report.sampled else split, metric, f"{100 * ours[metric]:.1f}"]
            row += [f"{100 * summary.median:.1f}", f"{100 * summary.spread:.1f}"] if many else []
            rows.append([*row, "" if baseline is None else f"{100 * baseline:.1f}"])
    spread = ["median of seeds", "spread"] if many else []
    answers = f" ({report.baseline_name})" if report.baseline_name else ""
    header = ["split", "metric", "this model", *spread, f"baseline{answers}"]
    failed = f"\n\n{report.n_failed} of {len(report.seeds)} seeds learned nothing." if report.n_failed else ""
    notes = "".join(f"\n\n{note}" for note in report.notes)
    return f"{table(header, rows)}\n\nDev chose the weights; other splits were scored once.{failed}{notes}"
