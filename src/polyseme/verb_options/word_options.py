"""The options of the commands over words and their uses: embed, similar, senses, concordance, compare, pieces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from polyseme.files.reading_options import ReadingOptions, TextOptions
from polyseme.options import Options, callback, doc, option, output_option
from polyseme.verb_options.model_options import (
    BYTES_DONE,
    IN_MEMORY,
    SOURCES,
    TYPED,
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
    from polyseme.files.atomic import AnyPath
    from polyseme.files.source_paths import Sources
    from polyseme.files.vector_files import Per, Store
    from polyseme.types import Progress
    from polyseme.verb_options.model_options import Texts

MatchKind = Literal["word", "lemma", "pattern"]
Sort = Literal["text", "left", "right", "similarity", "sense"]


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(LayerOptions, StackOption):
    """What decides a word's vector."""

    section: ClassVar[str] = "Vectors"

    carry_state: bool = option(
        False,
        "Carry the state of a recurrent encoder from text to text, as the original ELMo did: texts run in batches of "
        "64, and each starts from the final state of the text 64 before it. Interrupted work then restarts.",
    )
    pool_uses: str | None = option(
        None,
        "Concatenate to each word's vector the min, mean or max of the vectors of all earlier uses of the same word "
        "and this one (pooled Flair). The result depends on the order of the texts. Interrupted work then restarts.",
        "KIND",
        default="no",
    )


@dataclass(frozen=True, kw_only=True)
class PerOptions(Options):
    """What gets a vector."""

    section: ClassVar[str] = "Vectors"

    per: Per = option("word", "Unit that gets a vector: word or text.", "UNIT")
    text_pool: str | None = option(
        None,
        "Pooling of a text into one vector: words (mean of its word vectors); mean, first, last or max over all its "
        "pieces, special pieces included; model (as a sentence-transformers model defines it).",
        "POOLING",
        default="model if it defines one, else words",
    )


@dataclass(frozen=True, kw_only=True)
class ModelEmbedderOptions(EmbedderOptions, PerOptions, BatchOption):
    """What `Model.embedder` takes."""


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(EmbedderOptions, PerOptions, ReadingOptions, ComputeOptions, RayOption, ForceOption):
    """What `embed` takes."""

    sources: Sources = dataclasses.field(
        kw_only=False, metadata=doc(SOURCES + TYPED + IN_MEMORY, "INPUT...", parse="files or texts")
    )
    output: AnyPath = dataclasses.field(
        metadata=doc(
            "Output file: .parquet, .npz, .safetensors, .h5 or .jsonl; .csv or .tsv for one row per word; with "
            "--shard-rows, a folder.",
            "OUTPUT",
            flags="-o --output",
        )
    )
    store: Store | None = option(
        None,
        "Precision of the stored vectors: fp32, fp16, bf16 (.safetensors only), fp64.",
        "DTYPE",
        default="fp32; fp64 if the model runs in fp64",
    )
    long: bool = option(
        False,
        "Write a table with one row per word (id, position, word, start, end, fields, vector), for R and pandas: "
        ".parquet; .csv and .tsv always have this form.",
    )
    columns: str | Sequence[str] = option(
        (),
        "Columns of the table with one row per word, separated by commas: id, position, word, start, end, text, "
        "fields, vector, or single dimensions (v0, v17).",
        "NAMES",
        default="all but text",
        parse="names",
    )
    shard_rows: int | None = option(
        None, "Split the output into files of N texts each; the output is then a folder.", "N", default="one file"
    )
    shard_format: str = option("parquet", "Format of the shards: parquet, npz, safetensors, h5, jsonl.", "FORMAT")
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


USES_SOURCE = f"Texts in which to look for uses, or the output of embed. {SOURCES}"


@dataclass(frozen=True, kw_only=True)
class IndexOptions(UsesOptions, ReadingOptions):
    """Uses in texts, in files of vectors, or in an index."""

    source: Sources | None = option(None, USES_SOURCE, "INPUT", default="the index", flags="--in", parse="files")
    index: AnyPath | None = option(
        None,
        "Folder of an index: built from the texts if it does not exist, and searched without them afterwards.",
        "FOLDER",
        default="none",
    )


@dataclass(frozen=True, kw_only=True)
class SimilarOptions(IndexOptions):
    """What `similar` takes."""

    text: str = dataclasses.field(
        kw_only=False, metadata=doc(r"Text with the word in [brackets]; a literal bracket is written `\[` or `\]`.")
    )
    top: int = option(10, "Number of uses per list.", "N")
    against: str | int | Model | None = option(
        None,
        "Also list the neighbors at another layer (0: without context) or in another model, optionally with its "
        "layer (glove.txt, models/elmo@-1).",
        "LAYER|MODEL",
        default="none",
    )
    center: bool = option(
        True,
        "Subtract the mean vector of the marked word's uses before comparing them, which brings out its senses (the "
        "default).",
        flags="--center/--no-center",
    )
    same_word: bool | None = option(
        None, "Only uses of the marked word, or only of other words.", default="both", flags="--same-word/--other-words"
    )
    output: AnyPath | None = output_option("Output file: .json or .html.")


@dataclass(frozen=True, kw_only=True)
class SensesOptions(IndexOptions):
    """What `senses` takes."""

    word: str = dataclasses.field(kw_only=False, metadata=doc("The word, in any case."))
    output: AnyPath | None = output_option("Output file: .html, .png, .svg or .json.")
    n_senses: int | None = option(None, "Number of senses.", "N", default="estimated")
    context: int = option(
        5,
        "Context words on each side whose vectors are included; together they weigh as much as the word itself. "
        "0: the word only.",
        "N",
    )
    apply: AnyPath | None = option(
        None,
        "Senses file (.json) of an earlier run: each use is assigned one of its senses.",
        "FILE",
        default="cluster these uses",
    )
    names: AnyPath | Model | None = option(
        None,
        "Masked model that names senses by likely replacements of the word; none: name them by neighbors only.",
        "MODEL",
        default="the model itself if it can fill masks, else english-encoder if it is installed",
    )
    wordnet: AnyPath | None = option(
        None, "Folder of WordNet's database files, to show the nearest glosses of each sense.", "FOLDER", default="none"
    )
    map: str = option("pca", "Projection of the map: pca, tsne, umap.", "MAP")
    seed: int = option(0, "Seed of the clustering and the projection.", "N")


@dataclass(frozen=True, kw_only=True)
class ConcordanceOptions(LayerOptions, ReadingOptions, ComputeOptions, ForceOption):
    """What `concordance` takes."""

    query: str = dataclasses.field(kw_only=False, metadata=doc("A word or several, a lemma, or a pattern."))
    source: Sources = dataclasses.field(
        metadata=doc(f"Texts in which to look for matches. {SOURCES}", "INPUT", flags="--in", parse="files")
    )
    output: AnyPath | None = output_option("Output file: .txt, .csv, .html or .json.", default="printed")
    match: MatchKind = option(
        "word",
        "What QUERY is: word (one or several, by form), lemma (of a treebank), or pattern (a regular expression over "
        "the text; a text on which it takes too long is refused).",
        "KIND",
    )
    match_case: bool = option(False, "Match case.")
    width: int = option(40, "Characters shown on each side of a match.", "N")
    sort: Sort | None = option(
        None,
        "Order of the lines: text, left or right (by the words on that side), similarity (to a marked use), sense.",
        "ORDER",
        default="text; with a marked use, similarity",
    )
    like: str | None = option(
        None, "Text with a word in [brackets]: lines are ranked by similarity to this use.", "TEXT", default="none"
    )
    n_senses: int | None = option(None, "Number of senses.", "N", default="estimated")
    sample: int | None = option(None, "Number of lines to sample at random.", "N", default="all")
    seed: int = option(0, "Seed of the sample and the senses.", "N")
    progress: Progress | None = callback(BYTES_DONE)


@dataclass(frozen=True, kw_only=True)
class OneWordOptions(Options):
    """What `compare` takes for one word."""

    n_senses: int | None = option(None, "Number of senses.", "N", default="estimated")
    map: str = option("pca", "Projection of the map: pca, tsne, umap.", "MAP")


@dataclass(frozen=True, kw_only=True)
class AllWordsOptions(Options):
    """What `compare` takes for all words."""

    top: int = option(50, "Number of words to list when all are compared.", "N")
    min_uses: int = option(20, "Minimum number of uses in each corpus for a word to be compared.", "N")
    max_words: int = option(2000, "Maximum number of words to compare: the most frequent ones.", "N")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(OneWordOptions, AllWordsOptions, UsesOptions):
    """What `compare` takes."""

    word: str | None = dataclasses.field(
        default=None, kw_only=False, metadata=doc("The word, in any case. None: all words that are frequent in both.")
    )
    source: Sequence[Sources] = dataclasses.field(
        metadata=doc("The two corpora: files, folders or patterns, one for each.", "INPUT", flags="--in", parse="files")
    )
    output: AnyPath | None = output_option("Output file: .html, .json or .csv.")
    max_uses: int | None = option(
        None,
        "Maximum number of uses of a word sampled from each corpus.",
        "N",
        default="1000 for one word, 100 for all words",
    )
    group_by: str | None = option(
        None,
        "Unit that the permutation test exchanges as a whole: texts, blocks (lines between empty lines), or the name "
        "of a field, such as document or author.",
        "UNIT",
        default="blocks if an input has empty lines, else texts",
    )
    seed: int = option(0, "Seed of the sampling, the clustering and the projection.", "N")


@dataclass(frozen=True, kw_only=True)
class PiecesOptions(StackOption, DeviceOptions, ForceOption):
    """What `pieces` takes."""

    text: str | Sequence[str] = dataclasses.field(kw_only=False, metadata=doc("A text, or its words."))
    attentions: bool = option(False, "Include the attention weights of every layer.")
    output: AnyPath | None = output_option(
        "Output file with IDs, spans and the states of every layer: .npz.", default="not saved"
    )
