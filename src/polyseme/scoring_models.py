"""Models without an encoder, as users hold them: n-gram models, and mixtures of models that predict the same pieces.

They score and write like any other `Model`; whatever takes an encoder is refused with one message (`bundle`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from polyseme.api import Model, load
from polyseme.bundle import Bundle
from polyseme.convert.config_file import read_json, write_json
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.errors import ModelError, OptionError
from polyseme.files.atomic import AnyPath, whole_folder
from polyseme.generating.decoding_options import Decoding
from polyseme.generating.language_model import LanguageModel, never_written
from polyseme.generating.ngram_steps import MixtureSteps, NGramSteps
from polyseme.generating.prompts import TextPrompts
from polyseme.generating.text_generator import TextGenerator
from polyseme.model_card import OF_OUTPUTS, CardContent, model_card
from polyseme.model_summary import ModelSummary
from polyseme.ngrams.arpa import read_arpa
from polyseme.ngrams.model_folder import NGramModel, load_ngrams, save_ngrams
from polyseme.ngrams.recognition import MIXTURE, Kind, no_encoder
from polyseme.packaged_models import model_name
from polyseme.scoring.any_order import ONWARD
from polyseme.scoring.mixture import MixtureScoring
from polyseme.scoring.ngram import NGramScoring
from polyseme.scoring.scorer import Scorer
from polyseme.text.tokenizer import PieceTokenizer
from polyseme.types import NextPiece, Tokenizer
from polyseme.verb_options.text_options import MaskOptions, ScoringOptions

CAN = ("score", "evaluate", "generate", "convert")


class ScoringModel(Model):
    """A model that says how likely texts are, without an encoder."""

    kind: Kind

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.precision = "own"

    @property
    def bundle(self) -> Bundle:  # type: ignore[override]
        raise no_encoder(self.kind, self.path or "in memory")

    def _ready_for_scoring(self) -> dict[str, Any]:
        return {}

    def generator(self, decoding: Decoding, *, batch_size: int | None = None) -> TextGenerator:
        return TextGenerator(None, self._language_model, decoding, batch_size=batch_size)

    def save(
        self, path: AnyPath, *, force: bool = False, shard_size: int | None = None, store: str | None = None
    ) -> None:
        if shard_size is not None or store not in (None, "fp32"):
            raise OptionError("The tables of this model are stored as they are, in one file. Leave such options out.")
        self._save(path, force)

    @abstractmethod
    def _save(self, path: AnyPath, force: bool) -> None: ...

    @abstractmethod
    def _describe(self) -> str:
        """In a sentence, for the model card."""

    def __repr__(self) -> str:
        return f"Model({self._describe()}, {self.path or 'from no folder'})"

    def card(self, path: AnyPath) -> str:
        """The model card of its folder."""
        title = Path(path).resolve().name
        return model_card(None, CardContent(title=title, use=OF_OUTPUTS["causal"], origin=self._describe()))


class NGram(ScoringModel):
    """An n-gram model."""

    kind = "ngram"

    def __init__(self, model: NGramModel, path: str = "") -> None:
        super().__init__(path)
        self.model = model

    def _describe(self) -> str:
        tables = self.model.tables
        return (
            f"An n-gram model of order {tables.order:,} ({self.model.settings.get('smoothing', 'unknown smoothing')}): "
            f"{sum(tables.n_ngrams):,} n-grams of {tables.n_pieces:,} pieces."
        )

    @property
    def tokenizer(self) -> PieceTokenizer:
        return self.model.tokenizer

    def fingerprints(self) -> dict[str, Any]:
        return dict(self.model.fingerprint)

    def scorer(self, options: MaskOptions, batch_pieces: int | None, **settings: Any) -> Scorer:
        if options.hide not in (None, "word") or options.stride is not None or options.order not in (None, ONWARD):
            raise OptionError(
                "An n-gram model predicts each piece from the few before it: options that hide pieces, change the "
                "order or move a window mean nothing to it. Leave them out."
            )
        if isinstance(options, ScoringOptions):
            if options.neural_cache:
                raise OptionError("A neural cache keeps states, and an n-gram model has none. Leave it out.")
            if options.word_probability == "corrected":
                raise OptionError("Corrected word probabilities are not built for n-gram models. Leave the option out.")
        return Scorer(self.model.tokenizer, NGramScoring(self.model), torch.device("cpu"))

    @cached_property
    def _language_model(self) -> LanguageModel:
        return _continuing_language_model(self.tokenizer, NGramSteps(self.model), self.model.lead, torch.device("cpu"))

    def _save(self, path: AnyPath, force: bool) -> None:
        save_ngrams(self.model, path, force=force, card=self.card(path))

    def show(self) -> ModelSummary:
        tables, settings = self.model.tables, dict(self.model.settings)
        return _card(self, "ngram", {"order": tables.order, "n_ngrams": tables.n_ngrams, **settings}, tables.n_numbers)


class Mixture(ScoringModel):
    """Several models over the same pieces, with a weight each."""

    kind = "mixture"

    def __init__(self, parts: Sequence[Model], weights: Sequence[float], path: str = "") -> None:
        super().__init__(path)
        check_same_pieces(parts)
        self.parts = list(parts)
        self.weights = [float(weight) for weight in weights]

    def _describe(self) -> str:
        weighted = [f"{weight:.3f} × {_name(part)}" for part, weight in zip(self.parts, self.weights, strict=True)]
        return f"A linear mixture of {len(self.parts)} models: {' + '.join(weighted)}."

    @property
    def tokenizer(self) -> Tokenizer:
        return self.parts[0].tokenizer

    def fingerprints(self) -> dict[str, Any]:
        theirs = [part.fingerprints() for part in self.parts]
        named = {f"part {n} ({name})": each for n, part in enumerate(theirs) for name, each in part.items()}
        return {"weights": self.weights, **named}

    def scorer(self, options: MaskOptions, batch_pieces: int | None, **settings: Any) -> Scorer:
        scorers = [part.scorer(options, batch_pieces, **settings) for part in self.parts]
        if any(each.word_ends is not None for each in scorers):
            raise OptionError("Corrected word probabilities are not built for mixtures. Leave the option out.")
        if any(each.from_both_sides or each.needs_source for each in scorers):
            raise OptionError("Models are mixed that predict from left to right, without a source.")
        return Scorer(
            self.tokenizer, MixtureScoring([each.method for each in scorers], self.weights), scorers[0].device
        )

    @cached_property
    def _language_model(self) -> LanguageModel:
        models, tokenizer = [part._language_model for part in self.parts], self.tokenizer
        if any(each.source is not None for each in models):
            raise ModelError("Models are mixed that continue texts; one of these writes texts from a source.")
        steps = MixtureSteps([each.next_piece for each in models], self.weights, tokenizer.n_pieces)
        lead = tokenizer.specials.get("start", tokenizer.specials.get("end"))
        rooms = [each.room for each in models if each.room is not None]
        return _continuing_language_model(
            tokenizer, steps, lead, models[0].device, room=min(rooms) - 1 if rooms else None
        )

    def _save(self, path: AnyPath, force: bool) -> None:
        names = [f"part-{number}" for number in range(1, len(self.parts) + 1)]
        with whole_folder(path, force=force) as folder:
            write_json(folder / "config.json", {"model_type": MIXTURE, "weights": self.weights, "parts": names})
            for part, name in zip(self.parts, names, strict=True):
                part.save(folder / name)
            (folder / MODEL_CARD).write_text(self.card(path), encoding="utf-8")

    def show(self) -> ModelSummary:
        theirs = [part.show() for part in self.parts]
        settings = {"weights": self.weights, "parts": [each.family for each in theirs]}
        return _card(self, "mixture", settings, sum(each.parameters for each in theirs))


def check_same_pieces(models: Sequence[Model]) -> None:
    """Refuse models that do not predict the same pieces: their probabilities are of different events."""
    first, *others = models
    for other in others:
        if first.tokenizer.fingerprint != other.tokenizer.fingerprint:
            raise ModelError(
                f"{_name(first)} and {_name(other)} have different tokenizers ({first.tokenizer.n_pieces:,} and "
                f"{other.tokenizer.n_pieces:,} pieces), so that their probabilities are of different events. Train "
                "one of them with the tokenizer of the other: polyseme pretrain TEXTS --tokenizer OTHER …"
            )


def _name(model: Model) -> str:
    return model_name(model.path) if model.path else "a model in memory"


def _card(model: ScoringModel, family: str, settings: Mapping[str, Any], n_numbers: int) -> ModelSummary:
    tokenizer = model.tokenizer
    return ModelSummary(
        path=model.path,
        family=family,
        direction="causal",
        layers=0,
        width=0,
        vocabulary=tokenizer.n_pieces,
        window=None,
        parameters=n_numbers,
        outputs=("causal",),
        tokenizer=f"{tokenizer.n_pieces:,} pieces, fingerprint {tokenizer.fingerprint[:12]}",
        can=CAN,
        settings=dict(settings),
    )


def _continuing_language_model(
    tokenizer: Tokenizer, steps: NextPiece, lead: int | None, device: torch.device, room: int | None = None
) -> LanguageModel:
    """A model that continues prompts, each behind the piece that texts begin with."""
    return LanguageModel(
        next_piece=steps,
        n_pieces=tokenizer.n_pieces,
        device=device,
        prompts=TextPrompts(tokenizer, start=None, framed=lead is not None),
        before=() if lead is None else (lead,),
        room=room,
        end=tokenizer.specials.get("end"),
        forbidden=never_written(tokenizer, tokenizer.n_pieces),
    )


# --- loading ----------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> Path:
    return path if (path / "config.json").is_file() else path / "model"


def _load_mixture(path: Path, device: str, dtype: str) -> Mixture:
    folder = _folder(path)
    config = read_json(folder / "config.json")
    names, weights = config.get("parts"), config.get("weights")
    numbers = isinstance(weights, list) and all(isinstance(each, int | float) and 0 <= each <= 1 for each in weights)
    if not (isinstance(names, list) and numbers and len(names) == len(weights) > 1 and abs(sum(weights) - 1) < 1e-6):  # type: ignore[arg-type]
        raise ModelError(f"{folder / 'config.json'} must name at least two parts, with weights that sum to 1.")
    odd = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if odd:
        raise ModelError(f"{folder / 'config.json'} names a part outside of its folder: {odd[0]!r}. Put it there.")
    parts = [load(folder / str(name), device=device, dtype=dtype) for name in names]  # type: ignore[arg-type]
    return Mixture(parts, weights, str(path))  # type: ignore[arg-type]


LOADERS: Mapping[Kind, Callable[[Path, str, str], ScoringModel]] = {
    "ngram": lambda path, device, dtype: NGram(load_ngrams(_folder(path)), str(path)),
    "arpa": lambda path, device, dtype: NGram(read_arpa(path), str(path)),
    "mixture": _load_mixture,
}
"""How each kind is loaded: path, device, dtype."""
