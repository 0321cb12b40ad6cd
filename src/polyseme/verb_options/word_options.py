"""The options of the commands over words and their uses: embed, similar, senses, concordance, compare, pieces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from polyseme.files.reading_options import ReadingOptions, TextOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.verb_options.model_options import (
    BYTES_DONE,
    IN_MEMORY,
    SOURCES,
    BatchOption,
    ComputeOptions,
    DeviceOptions,
    ForceOption,
    LayerOptions,
    RayOption,
    StackOption,
)

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.files.source_paths import AnyPath, Sources
    from polyseme.files.vector_files import Per, Store
    from polyseme.types import Progress
    from polyseme.verb_options.model_options import Texts

MatchKind = Literal["word", "lemma", "pattern"]
Sort = Literal["text", "left", "right", "similarity", "sense"]


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(LayerOptions, StackOption):
    """What decides a word's vector."""

    carry_state: bool = option(
        False,
        "Let a recurrent encoder carry its state from text to text, as the original ELMo did: 64 texts side by side, "
        "each from where the one 64 before it ended. Interrupted work then restarts.",
    )
    pool_uses: str | None = option(
        None,
        "Put beside each word's vector the min, mean or max of those of all uses of the same word so far in the run "
        "(pooled Flair): the result depends on the order of the texts. Interrupted work then restarts.",
        "KIND",
        default="no",
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
class EmbedOptions(EmbedderOptions, PerOptions, ReadingOptions, ComputeOptions, RayOption, ForceOption):
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
    against: str | int | Model | None = option(
        None,
        "What else neighbors are listed of: a layer (0 shows those without context) or a model, perhaps with its layer "
        "(glove.txt, models/elmo@-1).",
        "LAYER|MODEL",
        default="none",
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
