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
    TYPED,
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
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
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
        "What a masked model cannot see while it predicts a piece: the whole word, only the piece, or the piece and "
        "the rest of its word (left-to-right).",
        "UNIT",
        default="word; for evaluate babylm, piece",
    )
    order: str | Sequence[int] | None = option(
        None,
        "Order of prediction: left-to-right; for two-way models (ELMo) also right-to-left or both; for any-order "
        "models (XLNet) also positions of pieces, such as 3,2,4,1.",
        "ORDER",
        default="left-to-right",
    )
    stride: int | None = option(
        None,
        "Number of pieces by which the window of a causal model moves in a text longer than its context.",
        "N",
        default="half a window",
    )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(MaskOptions):
    """How texts are scored, with the neural cache (Grave et al. 2017)."""

    word_probability: WordProbability = option(
        "pieces",
        "Probability of a word: pieces (the product over its pieces), or corrected (the words that may come next sum "
        "to 1 even if pieces include the preceding space; Pimentel and Meister 2024).",
        "METHOD",
    )
    marked: bool = option(False, "Score only the span in [brackets] in each text, given its context.")
    neural_cache: bool = option(
        False, "Mix a causal model's predictions with those of a neural cache over the last pieces of the text."
    )
    cache_size: int = option(2000, "Size of the neural cache, in pieces.", "N")
    cache_share: float = option(0.1, "Weight of the neural cache in the mixture (the paper's λ).", "SHARE")
    cache_sharpness: float = option(
        0.3, "Weight of state similarity in the neural cache (the paper's θ); with 0 it only counts pieces.", "NUMBER"
    )


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(Options):
    """How texts are written: which piece follows, and when a text ends."""

    max_new: int | None = option(
        None,
        "Maximum number of pieces to generate per text.",
        "N",
        default="the model's, or 20; 200 for sequence-to-sequence models",
    )
    min_new: int | None = option(
        None, "Minimum number of pieces before a text may end.", "N", default="the model's, or 0"
    )
    temperature: float | None = option(
        None,
        "Sampling temperature: below 1 sharpens the distribution; 0 always takes the most probable piece.",
        "T",
        default="the model's, or 0.8; 1 with --top-k or --top-p; 0 with --beam or for sequence-to-sequence models",
    )
    top_k: int | None = option(None, "Sample from the N most probable pieces.", "N", default="all")
    top_p: float | None = option(
        None,
        "Sample from the smallest set of most probable pieces with this total probability (nucleus sampling).",
        "SHARE",
        default="0.95; 1 if --temperature or --top-k is set",
    )
    greedy: bool = option(False, "Always take the most probable piece instead of sampling, as with temperature 0.")
    beam: int | None = option(None, "Beam size.", "N", default="the model's, or 1")
    length_penalty: float | None = option(
        None,
        "In beam search, divide the log-probability of a text by its length to this power.",
        "POWER",
        default="the model's, or 1",
    )
    early_stopping: EarlyStopping | None = option(
        None,
        "When beam search stops: on (True) once enough texts are finished, off (False) once a better text is "
        "unlikely, never once a better text is impossible.",
        "WHEN",
        parse="early_stopping",
        default="the model's, or off",
    )
    n: int = option(1, "Number of texts per prompt: samples, or the best of a beam.", "N")
    repetition_penalty: float | None = option(
        None,
        "Penalty on pieces that already occur in the text or the prompt; 1 is none.",
        "FACTOR",
        default="the model's, or 1",
    )
    no_repeat_ngram: int | None = option(
        None, "Never repeat a sequence of N pieces; 0 allows all.", "N", default="the model's, or 0"
    )
    stop: str | Sequence[str] = option(
        (), "Stop before this string; may be given several times.", "TEXT", parse="several"
    )
    seed: int = option(0, "Seed of sampling.", "N")
    stride: int | None = option(
        None,
        "Number of pieces by which the window moves when a text exceeds the model's positions.",
        "N",
        default="longer texts are refused",
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
        f"Files with prompts; requires an output. {SOURCES}",
        "INPUT",
        default="none",
        flags="--in",
        parse="files",
    )
    output: AnyPath | None = output_option(
        "Output file: .jsonl for one record per text, with its score; any other suffix for plain lines.",
        default="printed",
    )
    batch_size: int | None = option(None, "Batch size, in texts.", "N", default="16; on a GPU 64")
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
    batch_size: int | None = option(None, "Batch size, in texts.", default="16; on a GPU 64")
    on_text: OnText | None = callback(
        "Called with new text: the prompt's position, the number of the text, what is added to it."
    )


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ScoringOptions, ReadingOptions, ComputeOptions, RayOption, ForceOption):
    """What `score` takes."""

    model: AnyPath | Model | None = model_option("score")
    sources: Sources = dataclasses.field(
        kw_only=False, metadata=doc(SOURCES + TYPED + IN_MEMORY, "INPUT...", parse="files or texts")
    )
    source: AnyPath | None = option(
        None,
        "For sequence-to-sequence models: file with the source of each text, in the same order and format.",
        "FILE",
        default="none",
    )
    source_field: FieldName | None = option(
        None, "Field of the --source file with the source.", "NAME", default="as for the texts"
    )
    output: AnyPath | None = output_option(
        "Output file: .csv, .tsv, .jsonl, .parquet, or .html with the text shaded.", default="printed"
    )
    by: By = option("word", "Unit to score: word, piece, byte, text.", "UNIT")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class InterpolateOptions(TextOptions, DeviceOption, ForceOption):
    """What `interpolate` takes."""

    model: AnyPath | Sequence[AnyPath | Model] = dataclasses.field(
        metadata=doc(
            "Model to mix; given two or more times. The models must share a tokenizer: folders, run folders, .arpa "
            "files.",
            "MODEL",
            flags="-m --model",
            parse="files",
        )
    )
    source: Sources = dataclasses.field(
        metadata=doc(
            "Held-out texts, unseen in training, to fit the weights to; may be given several times." + IN_MEMORY,
            "INPUT",
            flags="--held-out",
            parse="files",
        )
    )
    output: AnyPath | None = output_option("Folder of the mixture, with copies of its models.", default="not saved")


@dataclass(frozen=True, kw_only=True)
class ScoreTextsOptions(ScoringOptions, BatchOption):
    """What `Model.score` takes."""

    texts: Texts = dataclasses.field(
        kw_only=False, metadata=doc("Strings, which are split into words, or lists of words, which stay as they are.")
    )
    source: Texts | None = option(
        None, "For sequence-to-sequence models: the source of each text, in the same order.", default="none"
    )


@dataclass(frozen=True, kw_only=True)
class FillTextOptions(Options):
    """What `Model.fill` takes."""

    text: str = dataclasses.field(
        kw_only=False, metadata=doc("A text with [MASK] where a piece, a word or a span is missing.")
    )
    top: int = option(
        5, "Number of candidates to list per mask; with --whole-words and several masks, for all of them together.", "N"
    )
    whole_words: bool = option(
        False,
        "Fill masks with whole words of one or more pieces, several masks jointly, instead of each mask with a "
        "single piece.",
    )
    targets: str | Sequence[str] = option(
        (), "Compare only these answers, separated by commas.", "WORDS", parse="names"
    )
    max_pieces: int | None = option(None, "Maximum number of pieces of a word or span.", "N", default="3")
    hide: WordHide | None = option(
        None,
        "What a masked model cannot see while it predicts a piece of a word: the pieces after it (left-to-right), or "
        "all others (word, faster).",
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
