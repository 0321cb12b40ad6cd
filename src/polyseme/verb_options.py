"""The options of the verbs that use a model: embed, similar, senses, generate, score, evaluate, predict and the rest.

Those of the verbs that train one are in `training_options`. What an option means is written here and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyseme.files.reading_options import ReadingOptions, TextOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.packaged_models import default_in_words

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.embedding.decoder_stack import Stack
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.files.vector_files import Per, Store
    from polyseme.filling.masked_words import WordHide
    from polyseme.generating.text_generator import OnText
    from polyseme.scoring.pseudo_likelihood import Hide
    from polyseme.scoring.score_files import By
    from polyseme.scoring.word_bounds import WordProbability
    from polyseme.types import Document, Progress

    Texts = str | Sequence[str] | Sequence[Sequence[str]] | Sequence[Document]

Dtype = Literal["fp32", "bf16", "fp16", "fp64", "int8"]
EarlyStopping = bool | Literal["never"]
MatchKind = Literal["word", "lemma", "pattern"]
Sort = Literal["text", "left", "right", "similarity", "sense"]
SOURCES = "Files, folders or patterns, or - for standard input; one, or several."
IN_MEMORY = (
    " In Python also texts: a list of them, of lists of words or of mappings, a frame, an Arrow table, a dataset."
)
BYTES_DONE = (
    "Called with the number of bytes of the input that are done, and the number of all; of rows, where it is in memory."
)


# --- what several verbs share -----------------------------------------------------------------------------------------


def model_option(verb: str) -> Any:
    """A field of a record for the model of a verb."""
    return option(
        None,
        "Model to use: a packaged one (see: polyseme models), a model folder, the folder of a run, a file of word "
        "vectors, or hub:owner/name.",
        "MODEL",
        default=default_in_words(verb),
        flags="-m --model",
    )


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """What `show` takes: which model is used."""

    model: AnyPath | Model | None = model_option("show")


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Options):
    """Where a model runs."""

    device: str = option("auto", "Device to compute on: auto (a GPU where there is one), cpu, cuda, cuda:N.", "DEVICE")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ShowOptions, DeviceOption):
    """Which model runs, and where."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions(DeviceOptions):
    """Which model runs, where, and in which precision."""

    dtype: Dtype = option("fp32", "Precision to compute in: fp32, bf16, fp16, fp64, int8.", "DTYPE")


@dataclass(frozen=True, kw_only=True)
class BatchOption(Options):
    """How many pieces run together."""

    batch_pieces: int | None = option(
        None, "Batch size, in pieces: how many run together.", "N", default="2048, on a GPU 65536"
    )


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(LoadOptions, BatchOption):
    """Which model runs, and how."""


@dataclass(frozen=True, kw_only=True)
class ForceOption(Options):
    """Whether an output that exists is replaced."""

    force: bool = option(False, "Replace the output if it exists; discard unfinished work that has other settings.")


@dataclass(frozen=True, kw_only=True)
class LayerOptions(Options):
    """Which vectors of a word are taken."""

    layer: str | int = option(
        -1,
        "Layer of the vectors: a number (0 is the token layer, -1 the top), all, sum:a:b, mean:a:b, concat:a:b, mix, "
        "mix:last3:0.2,0.3,0.5.",
        "LAYER",
    )
    pool: str = option(
        "mean", "How the pieces of a word become one vector: first, last, mean, max; ends (two-way models).", "POOLING"
    )


@dataclass(frozen=True, kw_only=True)
class StackOption(Options):
    """Which of two stacks is read."""

    stack: Stack = option(
        "encoder",
        "Stack of a model that has two: encoder, or decoder, which then reads the text on both sides.",
        "STACK",
    )


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(LayerOptions, StackOption):
    """What decides a word's vector."""

    carry_state: bool = option(
        False,
        "Let a recurrent encoder carry its state from text to text, as the original ELMo did: 64 texts side by side, "
        "each from where the one 64 before it ended. Interrupted work then restarts.",
    )


@dataclass(frozen=True, kw_only=True)
class PerOptions(Options):
    """What gets a vector."""

    per: Per = option("word", "What gets a vector: every word, or every text.", "UNIT")
    text_pool: str | None = option(
        None,
        "How a text becomes one vector: words (the mean of its words); mean, first, last or max of all its pieces, "
        "special ones included; model (as a sentence-transformers model says).",
        "POOLING",
        default="model where it says so, else words",
    )


@dataclass(frozen=True, kw_only=True)
class ModelEmbedderOptions(EmbedderOptions, PerOptions, BatchOption):
    """What `Model.embedder` takes."""


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
        None, "Most pieces written per text.", "N", default="20; by a model that reads sources, 200"
    )
    min_new: int = option(0, "Pieces before which no text ends by itself.", "N")
    temperature: float | None = option(
        None,
        "Temperature of sampling: below 1 the probable pieces become more so, 0 takes the most probable one each time.",
        "T",
        default="0.8; 1 with top-k or top-p; 0 with a beam, or by a model that reads sources",
    )
    top_k: int | None = option(None, "Sample among the N most probable pieces.", "N", default="all")
    top_p: float | None = option(
        None,
        "Sample among the fewest most probable pieces with this share of the probability.",
        "SHARE",
        default="0.95; all, where temperature or top-k is set",
    )
    greedy: bool = option(False, "Take the most probable piece each time, instead of sampling; as temperature 0.")
    beam: int = option(1, "Beam size: how many texts per prompt are kept side by side.", "N")
    length_penalty: float = option(
        1.0, "In a beam, a text's score is its log-probability divided by its length to this power.", "POWER"
    )
    early_stopping: EarlyStopping = option(
        False,
        "When a beam ends: on (True) once it is full of finished texts, off (False) once a better one is unlikely, "
        "never once it is impossible.",
        "WHEN",
        parse="early_stopping",
    )
    n: int = option(1, "Texts per prompt: samples, or the best of a beam.", "N")
    repetition_penalty: float = option(
        1.0, "Factor of the log-probability of pieces that occur in the text already, prompt included.", "FACTOR"
    )
    no_repeat_ngram: int = option(0, "Never repeat a sequence of N pieces; 0 is no bound.", "N")
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


# --- words ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(EmbedderOptions, PerOptions, ReadingOptions, ComputeOptions, ForceOption):
    """What `embed` takes."""

    sources: Sources = dataclasses.field(kw_only=False, metadata=doc(SOURCES + IN_MEMORY, "INPUT..."))
    output: AnyPath = dataclasses.field(
        metadata=doc(
            "File of the vectors: .parquet, .npz, .safetensors, .h5 or .jsonl; .csv or .tsv for one row per word; with "
            "shard rows, a folder.",
            "OUTPUT",
            flags="-o --output",
        )
    )
    store: Store | None = option(
        None,
        "Precision of the stored numbers: fp32, fp16, bf16 (.safetensors only), fp64.",
        "DTYPE",
        default="fp32; of a model in fp64, fp64",
    )
    long: bool = option(
        False,
        "Write a table with one row per word (id, position, word, start, end, fields, vector), for R and pandas: "
        ".parquet, or .csv and .tsv, which always are such tables.",
    )
    columns: str | Sequence[str] = option(
        (),
        "Columns of that table, separated by commas: id, position, word, start, end, text, fields, vector, or single "
        "numbers of it (v0, v17).  [default: all but text]",
        "NAMES",
        parse="names",
    )
    shard_rows: int | None = option(
        None, "Texts per file; the output is then a folder of files.", "N", default="one file"
    )
    shard_format: str = option("parquet", "Format of these files: parquet, npz, safetensors, h5, jsonl.", "FORMAT")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class EmbedTextsOptions(ModelEmbedderOptions):
    """What `Model.embed` takes."""

    texts: Texts = dataclasses.field(
        kw_only=False, metadata=doc("Strings, which are split into words, or lists of words, which stay as they are.")
    )


@dataclass(frozen=True, kw_only=True)
class UsesOptions(LayerOptions, TextOptions, ComputeOptions, ForceOption):
    """What the verbs that look at uses of words share."""

    progress: Progress | None = callback(BYTES_DONE)


USES_SOURCE = f"Texts in which to look for uses, or vectors that embed made of them. {SOURCES}"


@dataclass(frozen=True, kw_only=True)
class IndexOptions(UsesOptions, ReadingOptions):
    """Uses in texts, in files of vectors, or in an index."""

    source: Sources | None = option(None, USES_SOURCE, "INPUT", default="the index", flags="--in", parse="files")
    index: AnyPath | None = option(
        None,
        "Folder of an index: made from the texts if it is not there, and searched without them once it is.",
        "FOLDER",
        default="no index is kept",
    )


@dataclass(frozen=True, kw_only=True)
class SimilarOptions(IndexOptions):
    """What `similar` takes."""

    text: str = dataclasses.field(
        kw_only=False, metadata=doc(r"Text with the word in [brackets]; a bracket of its own is written `\[` or `\]`.")
    )
    top: int = option(10, "Uses per list.", "N")
    against: str | int | None = option(
        None, "Second layer whose neighbors are listed: 0 shows those without context.", "LAYER", default="none"
    )
    center: bool = option(
        True,
        "Compare uses of the marked word without their mean, which is the word's and not its senses' (the default).",
        flags="--center/--no-center",
    )
    same_word: bool | None = option(
        None, "Only uses of the marked word, or only of other words.", default="both", flags="--same-word/--other-words"
    )
    output: AnyPath | None = output_option("File of the result: .json or .html.")


@dataclass(frozen=True, kw_only=True)
class SensesOptions(IndexOptions):
    """What `senses` takes."""

    word: str = dataclasses.field(kw_only=False, metadata=doc("The word, in any case."))
    output: AnyPath | None = output_option("File of the senses: .html, .png, .svg or .json.")
    n_senses: int | None = option(None, "Number of senses.", "N", default="as many as are found")
    context: int = option(
        5, "Words on each side whose vectors count, together as much as the word's own; 0: only the word's own.", "N"
    )
    apply: AnyPath | None = option(
        None,
        "File of senses (.json) that were found before: each use gets one of them.",
        "FILE",
        default="senses are found in the uses",
    )
    names: AnyPath | Model | None = option(
        None,
        "Model that fills masks, to name senses by what could replace the word; or none: by neighbors only.",
        "MODEL",
        default="the model itself if it fills masks, else english-encoder if it is installed",
    )
    wordnet: AnyPath | None = option(
        None, "Folder of WordNet's database files: its nearest glosses go beside each sense.", "FOLDER", default="none"
    )
    map: str = option("pca", "Projection of the map: pca, tsne, umap.", "MAP")
    seed: int = option(0, "Seed of clusters and projection.", "N")


@dataclass(frozen=True, kw_only=True)
class ConcordanceOptions(LayerOptions, ReadingOptions, ComputeOptions, ForceOption):
    """What `concordance` takes."""

    query: str = dataclasses.field(kw_only=False, metadata=doc("A word or several, a lemma, or a pattern."))
    source: Sources = dataclasses.field(
        metadata=doc(f"Texts in which to look for matches. {SOURCES}", "INPUT", flags="--in", parse="files")
    )
    output: AnyPath | None = output_option("File of the lines: .txt, .csv, .html or .json.", default="printed")
    match: MatchKind = option(
        "word",
        "What is looked for: word (one or several, by form), lemma (of a treebank), or pattern (a regular expression "
        "over the text; a text on which it takes too long is refused).",
        "KIND",
    )
    match_case: bool = option(False, "Tell capital and small letters apart.")
    width: int = option(40, "Characters shown on each side of a match.", "N")
    sort: Sort | None = option(
        None,
        "Order of the lines: text, left, right (the words on that side), similarity (to a marked use), sense.",
        "ORDER",
        default="text; with a marked use, similarity",
    )
    like: str | None = option(
        None, r"Text with a use in [brackets], to whose vector lines are compared.", "TEXT", default="none"
    )
    n_senses: int | None = option(None, "Number of senses.", "N", default="as many as are found")
    sample: int | None = option(None, "Lines to draw at random.", "N", default="all")
    seed: int = option(0, "Seed of the sample and of the senses.", "N")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class OneWordOptions(Options):
    """What `compare` takes for one word."""

    n_senses: int | None = option(None, "Number of senses.", "N", default="as many as are found")
    map: str = option("pca", "Projection of the map: pca, tsne, umap.", "MAP")


@dataclass(frozen=True, kw_only=True)
class AllWordsOptions(Options):
    """What `compare` takes for all words."""

    top: int = option(50, "Words that are listed where all are compared.", "N")
    min_uses: int = option(20, "Uses in each corpus from which a word is compared.", "N")
    max_words: int = option(2000, "Words that are compared at most, the most frequent ones.", "N")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(OneWordOptions, AllWordsOptions, UsesOptions):
    """What `compare` takes."""

    word: str | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("The word, in any case. None: all words that are frequent in both.")
    )
    source: Sequence[Sources] = dataclasses.field(
        metadata=doc("The two corpora: files, folders or patterns, one for each.", "INPUT", flags="--in", parse="files")
    )
    output: AnyPath | None = output_option("File of the comparison: .html, .json or .csv.")
    max_uses: int | None = option(
        None, "Uses of a word that are drawn from each corpus.", "N", default="1000 of one word, 100 of all words"
    )
    group_by: str | None = option(
        None,
        "What the test exchanges between the corpora as a whole: texts, blocks (the lines between two empty ones), or "
        "the value of a field, such as a document or an author.",
        "UNIT",
        default="blocks where an input has empty lines, else texts",
    )
    seed: int = option(0, "Seed of draws, clusters and projection.", "N")


@dataclass(frozen=True, kw_only=True)
class PiecesOptions(StackOption, DeviceOptions, ForceOption):
    """What `pieces` takes."""

    text: str | Sequence[str] = dataclasses.field(kw_only=False, metadata=doc("A text, or its words."))
    attentions: bool = option(False, "Include the attention weights of every layer.")
    output: AnyPath | None = output_option(
        "File of ids, spans and the states of every layer: .npz.", default="not kept"
    )


# --- writing and scoring ----------------------------------------------------------------------------------------------


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
class PredictTextsOptions(Options):
    """What `Model.predict` takes."""

    texts: Sources = dataclasses.field(
        kw_only=False,
        metadata=doc(
            "Texts: strings, or lists of words; for two texts, pairs of them; for choices, pairs of a question and a "
            "list of choices; or a table (a frame, an Arrow table, a dataset, mappings); or files."
        ),
    )
    field: str | None = option(
        None, "Field of the text, or of its words, in a table.", default="as in training, or the only one there is"
    )
    second: str | None = option(None, "Field with the second text, or with the question.", default="as in training")
    choices: str | Sequence[str] = option((), "Fields with the choices, or the one with lists of them.")
    marks: str | None = option(None, "Field with one number per word: 1 at the predicate.", default="as in training")
    fields: str | Sequence[str] = option((), "Other fields to copy to the predictions, or all.")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ScoringOptions, ReadingOptions, ComputeOptions, ForceOption):
    """What `score` takes."""

    model: AnyPath | Model | None = model_option("score")
    sources: Sources = dataclasses.field(kw_only=False, metadata=doc(SOURCES + IN_MEMORY, "INPUT..."))
    source: AnyPath | None = option(
        None,
        "For a model with a decoder: file with the source of each text, in the same order, read as the texts are.",
        "FILE",
        default="none",
    )
    source_field: str | None = option(None, "Field of that file with the source.", "NAME", default="that of the texts")
    output: AnyPath | None = output_option(
        "File of the scores: .csv, .tsv, .jsonl, .parquet, or .html with the text shaded.", default="printed"
    )
    by: By = option("word", "What has a score of its own: word, piece, byte, text.", "UNIT")
    progress: Progress | None = callback(BYTES_DONE)


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


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(LayerOptions, TextOptions, ComputeOptions, ForceOption):
    """What `convert_model` takes."""

    model: AnyPath | None = model_option("convert")
    output: AnyPath = dataclasses.field(
        metadata=doc(
            "Folder to write; for word2vec a file: .vec or .txt (text), .bin (binary).", "OUTPUT", flags="-o --output"
        )
    )
    to: str = option(
        "polyseme",
        "Layout to write: polyseme (transformers loads it where it has the class), transformers (refused where it has "
        "none), sentence-transformers, or word2vec (one vector per word type of some texts).",
        "TARGET",
    )
    shard_size: int | None = option(None, "Largest file of weights, in bytes.", "BYTES", default="one file")
    store: Store = option("fp32", "Precision of the stored weights: fp32, fp16, bf16.", "DTYPE")
    text_pool: str | None = option(
        None,
        "For sentence-transformers, what a text's vector is of all its pieces, special ones included: mean, first, "
        "last, max.",
        "POOLING",
        default="the model's own where it has one, else mean",
    )
    source: Sources | None = option(
        None,
        f"For word2vec, texts with the words. {SOURCES}",
        "INPUT",
        default="none",
        flags="--in",
        parse="files",
    )
    min_count: int = option(5, "For word2vec, how often a word must occur in the texts.", "N")
    lowercase: bool = option(False, "For word2vec, count words in lowercase.")
    progress: Progress | None = callback(BYTES_DONE)
