"""The options of the commands that write, score or fill texts: generate, score, interpolate, fill, next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from polyseme.files.reading_options import FieldName, ReadingOptions, TextOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.verb_options.model_options import (
    BYTES_DONE,
    IN_MEMORY,
    SOURCES,
    BatchOption,
    ComputeOptions,
    DeviceOption,
    DeviceOptions,
    ForceOption,
    LoadOptions,
    RayOption,
    model_option,
)

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.filling.masked_words import WordHide
    from polyseme.generating.text_generator import OnText
    from polyseme.scoring.pseudo_likelihood import Hide
    from polyseme.scoring.score_formats import By
    from polyseme.scoring.word_bounds import WordProbability
    from polyseme.types import Progress
    from polyseme.verb_options.model_options import Texts

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, kw_only=True)
class MaskOptions(Options):
    """How texts are scored."""

    hide: Hide | None = option(
        None,
        "What is hidden from a masked model besides the piece that it predicts: its whole word, nothing (piece), or "
        "the rest of its word (left-to-right).",
        "UNIT",
        default="word; for the evaluation babylm, piece",
    )
    order: str | Sequence[int] | None = option(
        None,
        "Order of prediction: left-to-right, right-to-left or both for a two-way model (ELMo); for one that knows any "
        "order (XLNet) also positions of pieces, as in 3,2,4,1.",
        "ORDER",
        default="left-to-right",
    )
    stride: int | None = option(
        None,
        "Pieces by which the window of a causal model moves in a text that is longer than it reads.",
        "N",
        default="half a window",
    )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(MaskOptions):
    """How texts are scored, with the neural cache (Grave et al. 2017)."""

    word_probability: WordProbability = option(
        "pieces",
        "How a word's probability follows from those of its pieces: pieces (their product), or corrected, so that all "
        "words that may come next sum to 1 where pieces carry the blank before a word (Pimentel and Meister 2024).",
        "METHOD",
    )
    marked: bool = option(
        False, "Score only the span of words that each text has in [brackets], given the rest that the model sees."
    )
    neural_cache: bool = option(
        False, "Mix a causal model's predictions with those of a cache of the text's own last pieces."
    )
    cache_size: int = option(2000, "Pieces of a text that the neural cache keeps.", "N")
    cache_share: float = option(0.1, "Share of the probability that is the neural cache's (the paper's λ).", "SHARE")
    cache_sharpness: float = option(
        0.3, "Weight of the states' similarity in the neural cache (the paper's θ); 0 only counts pieces.", "NUMBER"
    )


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(Options):
    """How texts are written: which piece follows, and when a text ends."""

    max_new: int | None = option(
        None, "Most pieces written per text.", "N", default="the model's, or 20; by a model that reads sources, 200"
    )
    min_new: int | None = option(None, "Pieces before which no text ends by itself.", "N", default="the model's, or 0")
    temperature: float | None = option(
        None,
        "Temperature of sampling: below 1 the probable pieces become more so, 0 takes the most probable one each time.",
        "T",
        default="the model's, or 0.8; 1 with top-k or top-p; 0 with a beam, or by a model that reads sources",
    )
    top_k: int | None = option(None, "Sample among the N most probable pieces.", "N", default="all")
    top_p: float | None = option(
        None,
        "Sample among the fewest most probable pieces with this share of the probability.",
        "SHARE",
        default="0.95; all, where temperature or top-k is set",
    )
    greedy: bool = option(False, "Take the most probable piece each time, instead of sampling; as temperature 0.")
    beam: int | None = option(
        None, "Beam size: how many texts per prompt are kept side by side.", "N", default="the model's, or 1"
    )
    length_penalty: float | None = option(
        None,
        "In a beam, a text's score is its log-probability divided by its length to this power.",
        "POWER",
        default="the model's, or 1",
    )
    early_stopping: EarlyStopping | None = option(
        None,
        "When a beam ends: on (True) once it is full of finished texts, off (False) once a better one is unlikely, "
        "never once it is impossible.",
        "WHEN",
        parse="early_stopping",
        default="the model's, or off",
    )
    n: int = option(1, "Texts per prompt: samples, or the best of a beam.", "N")
    repetition_penalty: float | None = option(
        None,
        "Factor by which pieces that occur in the text already, prompt included, get less likely.",
        "FACTOR",
        default="the model's, or 1",
    )
    no_repeat_ngram: int | None = option(
        None, "Never repeat a sequence of N pieces; 0 is no bound.", "N", default="the model's, or 0"
    )
    stop: str | Sequence[str] = option(
        (), "String before which a text ends; may be given several times.", "TEXT", parse="several"
    )
    seed: int = option(0, "Seed of sampling.", "N")
    stride: int | None = option(
        None,
        "Pieces by which the window moves when a text fills the model's positions.",
        "N",
        default="such a text is refused",
    )


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(DecodingOptions, ReadingOptions, LoadOptions, ForceOption):
    """What `generate` takes."""

    model: AnyPath | Model | None = model_option("generate")
    prompts: str | Sequence[str] = dataclasses.field(
        default=(), kw_only=False, metadata=doc("One text to continue, or several.", "PROMPT...")
    )
    source: Sources | None = option(
        None,
        f"Prompts in files; an output is needed then. {SOURCES}",
        "INPUT",
        default="the prompts",
        flags="--in",
        parse="files",
    )
    output: AnyPath | None = output_option(
        "File of the texts: .jsonl for one record per text, with its score; any other ending for plain lines.",
        default="printed",
    )
    batch_size: int | None = option(None, "Batch size: texts written side by side.", "N", default="16, on a GPU 64")
    on_start: Callable[[bool], None] | None = callback(
        "Called once, before anything is written, with whether texts continue their prompts."
    )
    on_text: OnText | None = callback(
        "Called with new text of a prompt that is given here: the prompt's position, the number of the text, what is "
        "added to it."
    )
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class GenerateTextsOptions(DecodingOptions):
    """What `Model.generate` takes."""

    prompts: str | Sequence[str] = dataclasses.field(kw_only=False, metadata=doc("One text to continue, or several."))
    batch_size: int | None = option(None, "Batch size: texts written side by side.", default="16, on a GPU 64")
    on_text: OnText | None = callback(
        "Called with new text: the prompt's position, the number of the text, what is added to it."
    )


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ScoringOptions, ReadingOptions, ComputeOptions, RayOption, ForceOption):
    """What `score` takes."""

    model: AnyPath | Model | None = model_option("score")
    sources: Sources = dataclasses.field(kw_only=False, metadata=doc(SOURCES + IN_MEMORY, "INPUT..."))
    source: AnyPath | None = option(
        None,
        "For a model with a decoder: file with the source of each text, in the same order, read as the texts are.",
        "FILE",
        default="none",
    )
    source_field: FieldName | None = option(
        None, "Field of that file with the source.", "NAME", default="that of the texts"
    )
    output: AnyPath | None = output_option(
        "File of the scores: .csv, .tsv, .jsonl, .parquet, or .html with the text shaded.", default="printed"
    )
    by: By = option("word", "What has a score of its own: word, piece, byte, text.", "UNIT")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class InterpolateOptions(TextOptions, DeviceOption, ForceOption):
    """What `interpolate` takes."""

    model: AnyPath | Sequence[AnyPath | Model] = dataclasses.field(
        metadata=doc(
            "Models to mix, two or more, over the same tokenizer: folders, folders of runs, .arpa files; given once "
            "for each.",
            "MODEL",
            flags="-m --model",
            parse="files",
        )
    )
    source: Sources = dataclasses.field(
        metadata=doc(
            "Texts that no model has seen, which the weights are fitted to; may be given several times." + IN_MEMORY,
            "INPUT",
            flags="--held-out",
            parse="files",
        )
    )
    output: AnyPath | None = output_option("Folder of the mixture, with its models in it.", default="not kept")


@dataclass(frozen=True, kw_only=True)
class ScoreTextsOptions(ScoringOptions, BatchOption):
    """What `Model.score` takes."""

    texts: Texts = dataclasses.field(
        kw_only=False, metadata=doc("Strings, which are split into words, or lists of words, which stay as they are.")
    )
    source: Texts | None = option(
        None, "For a model with a decoder: the source of each text, in the same order.", default="none"
    )


@dataclass(frozen=True, kw_only=True)
class FillTextOptions(Options):
    """What `Model.fill` takes."""

    text: str = dataclasses.field(
        kw_only=False, metadata=doc("A text with [MASK] where a piece, a word or a span is missing.")
    )
    top: int = option(5, "Candidates listed per mask; of several masks together, candidates for all of them.", "N")
    whole_words: bool = option(
        False,
        "Fill each mask with a whole word of one or more pieces, several masks together, instead of a single piece "
        "each by itself.",
    )
    targets: str | Sequence[str] = option(
        (), "Compare only these answers, with commas between them.", "WORDS", parse="names"
    )
    max_pieces: int | None = option(None, "Most pieces of a word or span.", "N", default="3")
    hide: WordHide | None = option(
        None,
        "What is hidden from a masked model besides the piece of a word that it predicts: the pieces after it "
        "(left-to-right), or all others (word), which is quicker.",
        "UNIT",
        default="left-to-right",
    )


@dataclass(frozen=True, kw_only=True)
class FillOptions(FillTextOptions, DeviceOptions):
    """What `fill` takes."""

    model: AnyPath | Model | None = model_option("fill")


@dataclass(frozen=True, kw_only=True)
class NextOptions(DeviceOptions):
    """What `next` takes."""

    model: AnyPath | Model | None = model_option("next")
    first: str = dataclasses.field(kw_only=False, metadata=doc("A sentence."))
    second: str = dataclasses.field(kw_only=False, metadata=doc("The sentence that may follow it."))
