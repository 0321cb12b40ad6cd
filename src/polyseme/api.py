"""What users hold: `load`, and the `Model` that it returns. The verbs of the command line are functions in `verbs`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polyseme.bundle import Bundle
from polyseme.convert.config_file import read_json
from polyseme.convert.hub import find_model
from polyseme.convert.sentence_transformers import MODEL_CARD
from polyseme.embedding.decoder_stack import Stack
from polyseme.embedding.flow import CarriedMemory, Embedder, warn_unread
from polyseme.embedding.piece_states import PieceStates, one_row, piece_states
from polyseme.embedding.pooling import warn_wordless
from polyseme.encoders.inference import InferenceEncoder, Precision, build_inference_encoder
from polyseme.errors import ModelError, OptionError, nearest
from polyseme.extras import later
from polyseme.files.atomic import AnyPath
from polyseme.files.in_memory import inputs_of
from polyseme.filling.filled_masks import FilledMask
from polyseme.filling.masked_pieces import fill_pieces
from polyseme.model_card import card_by_precision, plain_card
from polyseme.model_folder import CARD, OF_ENDS, OF_WRITING, load_bundle, model_folder, save_bundle
from polyseme.model_summary import ModelSummary, short_number, summarize_bundle
from polyseme.ngrams.recognition import kind_without_encoder
from polyseme.options import check_choice, flat_method
from polyseme.packaged_models import where_output
from polyseme.parts.device import find_device
from polyseme.result_tables import ResultList
from polyseme.text.documents import string_to_document, to_documents
from polyseme.types import EmbeddedDocument, Tokenizer, documents_table
from polyseme.verb_options.evaluation_options import PredictTextsOptions
from polyseme.verb_options.model_options import Dtype
from polyseme.verb_options.text_options import (
    DecodingOptions,
    FillTextOptions,
    GenerateTextsOptions,
    MaskOptions,
    ScoreTextsOptions,
    ScoringOptions,
)
from polyseme.verb_options.word_options import EmbedTextsOptions, ModelEmbedderOptions

if TYPE_CHECKING:
    from polyseme.files.vector_files import Store
    from polyseme.filling.filled_masks import Filler
    from polyseme.filling.masked_words import WordHide
    from polyseme.generating.decoding_options import Decoding
    from polyseme.generating.language_model import LanguageModel
    from polyseme.generating.text_generator import TextGenerator
    from polyseme.scoring.scorer import Scorer
    from polyseme.scoring.text_scores import ScoredDocument
    from polyseme.tasks.predictions import Prediction
    from polyseme.transfer.task_model import TaskModel

DTYPES: dict[Dtype, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "int8": torch.float32,
    "auto": torch.float32,
}
"""What weights are kept in; int8 ones are made from fp32."""
STORES = ("fp32", "fp16", "bf16")
"""What weights are stored in."""


class Model:
    """A loaded model: its tokenizer, encoder and outputs, with a method for each task on texts in memory.

    `load` makes one. For files of any size, use the function of the same name: `polyseme.embed`, `polyseme.score` ….
    """

    def __init__(self, bundle: Bundle, path: str = "", *, precision: Precision = "own") -> None:
        self.bundle = bundle
        self.path = path
        self.precision: Precision = precision
        """What `embed` and `generate` multiply in, if not in the weights' own precision."""

    def __repr__(self) -> str:
        config = self.bundle.config
        size = (
            f"{config.depth} layers of width {config.widths[-1]}, {short_number(self.bundle.n_parameters())} parameters"
        )
        dtype = next(self.bundle.encoder.parameters()).dtype
        where = f"{str(dtype).removeprefix('torch.')} on {self.bundle.device}"
        return f"Model({self.bundle.family.name}, {size}, {where}, {self.path or 'from no folder'})"

    @property
    def dtype(self) -> Dtype:
        """What it computes in, by the names that `load` takes."""
        if self.precision != "own":
            return self.precision
        own = next(self.bundle.encoder.parameters()).dtype
        return next(name for name, dtype in DTYPES.items() if dtype == own)

    # --- words --------------------------------------------------------------------------------------------------------

    @flat_method(EmbedTextsOptions)
    def embed(self, options: EmbedTextsOptions) -> list[EmbeddedDocument]:
        """One vector for every word of every text, or with `per="text"` one per text.

        A text's vector is the mean of its words'. A sentence-transformers model computes it in its own way: by its
        pooling, and what it does after that.

        With `carry_state` a recurrent encoder carries its state on as the original ELMo did: 64 texts are a batch, and
        each starts where the text of the same number in the batch before ended, also from call to call, until `forget`.
        Then the same text does not have the same vectors each time.

            >>> model = polyseme.load()                                         # doctest: +SKIP
            >>> model.embed([["Dawn", "broke"]], layer="concat:-2:-1")          # doctest: +SKIP
        """
        embedder = self.embedder(**options.values(ModelEmbedderOptions))
        embedded = embedder(to_documents(options.texts))
        warn_unread(embedder.tally)
        if embedder.tally.wordless and options.per == "text":
            warn_wordless(embedder.tally.wordless)
        return ResultList(embedded, documents_table)

    def forget(self) -> None:
        """Drop the state that texts embedded with `carry_state` have left."""
        self._carried.memory = None

    @flat_method(ModelEmbedderOptions)
    def embedder(self, options: ModelEmbedderOptions) -> Embedder:
        """What `embed` runs, to be called with documents as often as wanted; it keeps a tally of all of them."""
        values = options.values()
        carried = self._carried if values.pop("carry_state") else None
        return Embedder(self.bundle, **values, precision=self.precision, inference=self._inference, carried=carried)

    @cached_property
    def _carried(self) -> CarriedMemory:
        return CarriedMemory()

    @cached_property
    def _inference(self) -> InferenceEncoder:
        return build_inference_encoder(self.bundle.encoder, self.precision)

    def __sklearn_clone__(self) -> Model:
        """Estimators that scikit-learn clones share a loaded model: embedding does not change it."""
        return self

    # --- pieces -------------------------------------------------------------------------------------------------------

    def pieces(self, text: str | Sequence[str], *, stack: Stack = "encoder", attentions: bool = False) -> PieceStates:
        """A text (or its words) in the model's pieces, with the states of every layer.

        With `stack="decoder"` they are the decoder's, with the text on both sides: the decoder reads it behind the
        piece that it begins with, without the last special.
        """
        return piece_states(self.bundle, text, stack=stack, attentions=attentions)

    @flat_method(FillTextOptions)
    def fill(self, options: FillTextOptions) -> list[FilledMask]:
        """What may be at each `[MASK]` of a text: the likeliest pieces, each mask by itself.

        With `whole_words`, words of one or more pieces, at several masks together; with `targets`, the given answers.
        A model without a mask piece that writes texts (GPT-2, BART, T5) fills in spans, or whole words.

            >>> model.fill("The [MASK] sat on the mat.", whole_words=True)[0].words     # doctest: +SKIP
        """
        text = string_to_document(options.text).text
        if options.top < 1:
            raise OptionError(f"The number of candidates must be at least 1. Got {options.top} instead.")
        filling = later("polyseme.filling.fill_text")
        if not filling.by_words(options, fills_pieces=self._fills_pieces) and self._fills_pieces:
            output = self._output("masked", "fill masks")
            return fill_pieces(self.bundle, output, text, options.top)
        result: list[FilledMask] = filling.fill_text(self.filler(options.hide), text, options)
        return result

    @property
    def _fills_pieces(self) -> bool:
        """Whether single pieces are what the model fills in: it has a masked output, or nothing else to fill with."""
        return "masked" in self.bundle.outputs or not later("polyseme.filling.choose_filler").can_fill(self.bundle)

    def filler(self, hide: WordHide | None = None) -> Filler:
        """What `fill` runs for whole words, given answers and spans; cloze sets are answered by it."""
        if hide not in self._fillers:
            if not later("polyseme.filling.choose_filler").can_fill(self.bundle):
                self._output("masked", "fill masks")
            self._fillers[hide] = later("polyseme.filling.choose_filler").filler_of(
                self.bundle,
                hide=hide,
                precision=self.precision,
                inference=self._inference if self.bundle.decoder is None else None,
            )
        return self._fillers[hide]

    @cached_property
    def _fillers(self) -> dict[WordHide | None, Filler]:
        return {}

    def next(self, first: str, second: str) -> float:
        """The probability that `second` follows `first`, by the model's next-sentence output.

        Of a model that was trained on the order of sentences (`next=sop`, ALBERT): that the two, taken to be neighbors,
        are in this order.
        """
        output = self._output("next", "judge whether a sentence follows another")
        pooled = self._output("pooled", "judge whether a sentence follows another")
        tokenizer = self.bundle.text_tokenizer
        ids = [tokenizer.encode(string_to_document(text)).ids for text in (first, second)]
        batch = one_row(self.bundle, tokenizer.frame(ids[0], ids[1]))
        with torch.inference_mode():
            states = self.bundle.encoder(batch, layers=[-1])[-1]
            return float(output.log_probs(pooled(states[:, 0])).exp()[0, 0])

    @flat_method(ScoreTextsOptions)
    def score(self, options: ScoreTextsOptions) -> list[ScoredDocument]:
        """How likely every piece and every word of every text is: natural log-probabilities, and their totals.

        A causal model predicts each piece from those before it; a text longer than it reads goes in windows. A masked
        model predicts each piece from both sides. A model that has a decoder scores each text given its `source`.

            >>> scored = model.score(["Dawn broke."])[0]                        # doctest: +SKIP
            >>> scored.word_log_probs, scored.totals.perplexity_per_word        # doctest: +SKIP
        """
        scorer = self.scorer(options, options.batch_pieces, **self._ready_for_scoring())
        sources = None if options.source is None else to_documents(options.source)
        documents = to_documents(options.texts)
        if options.marked:
            documents = [later("polyseme.text.marked_word").marked_span(document) for document in documents]
        scores: list[ScoredDocument] = scorer(documents, sources=sources)
        scorer.warn()
        return ResultList(scores, later("polyseme.scoring.text_scores").scores_table)

    def _ready_for_scoring(self) -> dict[str, Any]:
        """What is kept from call to call, so that weights are laid out once."""
        return {"inference": self._inference if self.bundle.decoder is None else None}

    def scorer(self, options: MaskOptions, batch_pieces: int | None, **settings: Any) -> Scorer:
        """What `score` runs, to be called with documents as often as wanted; it keeps a tally of all of them."""
        if isinstance(options, ScoringOptions):
            settings["neural_cache"] = later("polyseme.scoring.neural_cache").neural_cache_of(
                options.neural_cache, options.cache_size, options.cache_share, options.cache_sharpness
            )
            settings["word_probability"] = options.word_probability
        return later("polyseme.scoring.choose_scorer").scorer_of(  # type: ignore[no-any-return]
            self.bundle, **options.values(MaskOptions), batch_pieces=batch_pieces, precision=self.precision, **settings
        )

    # --- tasks --------------------------------------------------------------------------------------------------------

    @flat_method(PredictTextsOptions)
    def predict(self, options: PredictTextsOptions) -> list[Prediction]:
        """What a model that `finetune` has fitted to a task says of each text, in their order.

        >>> polyseme.load("models/stars").predict(["A great film"])[0].label        # doctest: +SKIP
        """
        model, card = self.task_model
        named = later("polyseme.transfer.predict_columns").Columns.named
        fields = (options.fields,) if isinstance(options.fields, str) else tuple(options.fields)
        judged = later("polyseme.transfer.predict_inputs").predict_inputs(
            later("polyseme.transfer.predict_files").Predictor(model, card=card),
            inputs_of(options.texts),
            columns=named(options),
            reading={"fields": fields},
        )
        return ResultList(judged.predictions, later("polyseme.tasks.predictions").predictions_table)

    @cached_property
    def task_model(self) -> tuple[TaskModel, dict[str, Any]]:
        """The model with the head that was fitted to a task, and what its folder says of that; refused without one.

        Its encoder is this one, unless this one is not in fp32.
        """
        if not self.path:
            raise ModelError(
                "The model comes from no folder, so that it has no task head. Load a model that finetune wrote."
            )
        files, folder = later("polyseme.transfer.task_folder"), model_folder(Path(self.path))
        shared = self.bundle if next(self.bundle.encoder.parameters()).dtype == torch.float32 else None
        dtype = "int8" if self.precision == "int8" else "fp32"
        model: TaskModel = files.load_task_model(folder, device=str(self.bundle.device), bundle=shared, dtype=dtype)
        return model, files.task_card(folder) or {}

    # --- texts --------------------------------------------------------------------------------------------------------

    @flat_method(GenerateTextsOptions)
    def generate(self, options: GenerateTextsOptions) -> list[str] | list[list[str]]:
        """What follows each prompt, without the prompt: one string per prompt, or with `n` over 1 a list of them.

        A model that has a decoder reads each prompt as a source, and writes a text of its own from it. A text's samples
        depend on `seed` and on the prompt's position alone: prompts give the same together and one at a time.

            >>> model.generate(["In a shocking finding, scientists"], max_new=20, greedy=True)       # doctest: +SKIP
        """
        decoding = self.decoding(options)
        prompts = [document.text for document in to_documents(options.prompts)]
        texts = self.generator(decoding, batch_size=options.batch_size)(prompts, on_text=options.on_text)
        if options.n == 1:
            return [continuations[0].text for continuations in texts]
        return [[each.text for each in continuations] for continuations in texts]

    def decoding(self, options: DecodingOptions) -> Decoding:
        """The options of `generate` with this model's defaults: its usual length, and whether it samples."""
        decoding: Decoding = later("polyseme.generating.decoding_options").Decoding.of(
            options,
            self.usual_length,
            samples=self._language_model.source is None,
            defaults=self._language_model.defaults,
        )
        return decoding

    def generator(self, decoding: Decoding, *, batch_size: int | None = None) -> TextGenerator:
        """What `generate` runs, to be called with prompts as often as wanted; it keeps a tally of all of them."""
        texts = later("polyseme.generating.text_generator")
        generator: TextGenerator = texts.TextGenerator(
            self.bundle, self._language_model, decoding, batch_size=batch_size
        )
        return generator

    @property
    def usual_length(self) -> int:
        """How many pieces `generate` writes at most by default."""
        return self._language_model.usual_length

    @cached_property
    def _language_model(self) -> LanguageModel:
        model: LanguageModel = later("polyseme.generating.language_model").language_model(self.bundle, self.precision)
        return model

    # --- the model itself ---------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to pieces and back."""
        return self.bundle.text_tokenizer

    def fingerprints(self) -> dict[str, Any]:
        """What its scores and texts depend on, part by part, so that messages can name the part that differs."""
        hashes, bundle = later("polyseme.embedding.model_fingerprint"), self.bundle
        writing = {name: value for name, value in bundle.foreign.items() if name in OF_WRITING}
        writing |= {name: value for name, value in bundle.generation.items() if name in OF_ENDS}
        return {
            **hashes.fingerprint(bundle, self.precision),
            "outputs": hashes.outputs_fingerprint(bundle),
            **writing,
        }

    def save(
        self, path: AnyPath, *, force: bool = False, shard_size: int | None = None, store: Store | None = None
    ) -> None:
        """Write the model as a folder that polyseme and, where it has the class, `transformers` load.

        Weights are stored as they are, or in the precision `store`: fp32, fp16 or bf16. Of a model that computes in
        int8, the weights of its products are stored in that, and polyseme alone loads it. A file of them has at most
        `shard_size` bytes. The model card (README.md) that the model came with is saved with it; if there is none, a
        short one is written.
        """
        if store is not None:
            check_choice("store", store, STORES)
        if shard_size is not None and shard_size < 1:
            raise OptionError(f"A shard must have room for at least 1 byte. Got {shard_size} instead.")
        dtype = None if store is None else DTYPES[store]
        int8 = self.precision == "int8"
        card = plain_card(self.bundle, path)
        if int8 or self.bundle.from_int8:
            own = self.bundle.extra_files.get(MODEL_CARD, b"").decode("utf-8", "replace")
            card = card_by_precision(card or own, int8=int8)
        save_bundle(self.bundle, path, force=force, shard_size=shard_size, dtype=dtype, int8=int8, card=card)

    def show(self) -> ModelSummary:
        """What the model is and what it can do."""
        return summarize_bundle(self.bundle, self.path)

    def _output(self, name: str, purpose: str) -> Any:
        if name not in self.bundle.outputs:
            has = ", ".join(self.bundle.outputs) or "none"
            raise ModelError(
                f"The model cannot {purpose}: it has no {name!r} output (it has: {has}). {self._where_else(name)}"
            )
        return self.bundle.outputs[name]

    def _where_else(self, name: str) -> str:
        """Where an output is that the model lacks: a run may keep the generator that it learned with beside it."""
        beside = model_folder(Path(self.path)).parent / "generator" if self.path else Path()
        if (beside / CARD).is_file() and name in read_json(beside / CARD).get("outputs", ()):
            return f"Take {beside}, beside it, which has one."
        return where_output(name)


def load(model: AnyPath | Model | None = None, *, device: str = "auto", dtype: Dtype = "auto") -> Model:
    """Load a model.

    Args:
        model: A model folder, a run folder, a file of word vectors or n-grams, a packaged model (`list_models`), or one
            of a hub (`hub:owner/name`). None: the packaged model for word vectors; other packaged models fill masks
            (`english-encoder`), or generate and score texts (`english-decoder`). A loaded model is returned as it is.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        dtype: The precision of computations: fp32, bf16, fp16, fp64 or int8. auto is fp32; on a CPU it is int8 if the
            weights are stored in int8. On a CPU, bf16 and int8 apply to `embed` and `generate`, and only to their
            matrix products; sums and norms stay in fp32.
    """
    if dtype not in DTYPES:
        raise OptionError(f"There is no dtype {dtype!r}. {nearest(dtype, DTYPES)}")
    if isinstance(model, Model):
        if (device, dtype) != ("auto", "auto"):
            raise OptionError(
                "The model is loaded already, with its device and dtype. Leave both out here, and give them to load()."
            )
        return model
    chosen = find_device(device)
    on_cpu = torch.device(chosen).type == "cpu"
    if dtype == "int8" and not on_cpu:
        raise OptionError(f"int8 runs on a CPU only. On {chosen}, use bf16.")
    precision: Precision = "own"  # what products run in, where weights are in fp32
    if on_cpu and dtype in ("bf16", "int8"):
        precision = "bf16" if dtype == "bf16" else "int8"
    folder = find_model(None if model is None else str(model))
    kind = kind_without_encoder(folder)
    if kind is not None:
        return later("polyseme.scoring_models").LOADERS[kind](folder, chosen, dtype)  # type: ignore[no-any-return]
    bundle = load_bundle(folder, dtype=torch.float32 if precision != "own" else DTYPES[dtype], device=chosen)
    if on_cpu and dtype == "auto" and bundle.from_int8:
        precision = "int8"
    return Model(bundle, path=str(folder), precision=precision)


def folder_of(model: AnyPath | Model | None) -> AnyPath | None:
    """What names a model: its path where it is loaded already."""
    return (model.path or None) if isinstance(model, Model) else model
