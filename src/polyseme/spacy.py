"""A component of spaCy's pipelines: every token of a document gets its vector in context.

Installed with the extra `spacy`, it is found by its name, `nlp.add_pipe("polyseme")`. spaCy imports this module with
every pipeline that it makes, so that nothing heavy is loaded here: the model comes with the first document.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyseme.errors import InputError, OptionError
from polyseme.extras import later, require
from polyseme.files.atomic import whole_file
from polyseme.json_reading import parse_json
from polyseme.options import check_names, flat_method, signature_of
from polyseme.verb_options.model_options import ComputeOptions, LayerOptions

if TYPE_CHECKING:
    from polyseme.api import Model
    from polyseme.embedding.flow import Embedder

_spacy: Any = require("spacy.language", extra="spacy")

NAME = "polyseme"
FILE = "options.json"

ErrorHandler = Callable[[str, Any, list[Any], Exception], None]


@dataclass(frozen=True, kw_only=True)
class ComponentOptions(LayerOptions, ComputeOptions):
    """What the component takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if str(self.layer) == "all":
            raise OptionError("Layer 'all' gives a word several vectors, and spaCy has one per token. Use concat:0:-1.")


class TokenVectors:
    """Documents of spaCy in, the same documents out, with `doc.tensor`: one row per token, in the tokens' order.

    Tokens are read as given words, so that a token's vector is that of `Model.embed` with the same list of words. A
    token of nothing but blanks is no word: its row is zeros. Hooks make these the vectors of tokens, spans and
    documents (means over tokens, as spaCy has it) and the base of similarities, also in a pipeline with static vectors.
    spaCy does not store hooks with a document's bytes, and warns so; `doc.tensor` is stored.

        >>> nlp = spacy.blank("en")                                              # doctest: +SKIP
        >>> nlp.add_pipe("polyseme", config={"model": "path/to/bert"})           # doctest: +SKIP
        >>> nlp("Dawn broke.")[1].vector.shape                                   # doctest: +SKIP
    """

    @flat_method(ComponentOptions)
    def __init__(self, options: ComponentOptions) -> None:
        """Keep the options; the model is loaded with the first document."""
        self.options = options
        self.name = NAME
        self._error_handler: ErrorHandler = _raise

    def __call__(self, doc: Any) -> Any:
        """One document."""
        embedder = self._embedder()
        self._embed([doc], embedder)
        _report(embedder)
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 128) -> Iterator[Any]:
        """Documents as they come, so many at a time; tokens that the model cannot read are reported at the end."""
        embedder = self._embedder()
        documents = iter(stream)
        while batch := list(itertools.islice(documents, max(batch_size, 1))):
            try:
                self._embed(batch, embedder)
            except Exception as error:  # noqa: BLE001 - what becomes of it is for the pipeline's handler to decide
                self._error_handler(self.name, self, batch, error)
            else:
                yield from batch
        _report(embedder)

    def set_error_handler(self, handler: ErrorHandler) -> None:
        """What is called, as spaCy has it, with the documents of a batch that failed."""
        self._error_handler = handler

    def get_error_handler(self) -> ErrorHandler:
        """What is called with the documents of a batch that failed; the usual one raises the error."""
        return self._error_handler

    # --- saved by reference: which model, and the options; no weights -------------------------------------------------

    def to_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> None:
        """Write the model's path and the options into a folder."""
        with whole_file(Path(path) / FILE, force=True) as file:
            file.write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, *, exclude: Sequence[str] = ()) -> TokenVectors:
        """Take the options of a folder; those that this component was given otherwise stay."""
        file = Path(path) / FILE
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}. Is the pipeline's folder whole?") from None
        return self.from_bytes(content)

    def to_bytes(self, *, exclude: Sequence[str] = ()) -> bytes:
        """The model's path and the options, as JSON."""
        options = self.options.values()
        if options["model"] is not None:
            options["model"] = str(options["model"])
        return json.dumps(options, indent=2, ensure_ascii=False).encode()

    def from_bytes(self, content: bytes, *, exclude: Sequence[str] = ()) -> TokenVectors:
        """Take the options of `to_bytes`; those that this component was given otherwise stay."""
        stored = parse_json(content, kind=dict)
        check_names(NAME, stored, ComponentOptions().values())
        self.options = ComponentOptions(**{**stored, **self.options.changed()})
        self.__dict__.pop("_model", None)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """All but the model, which is loaded where it is used."""
        return {name: value for name, value in vars(self).items() if name != "_model"}

    # --- inside -------------------------------------------------------------------------------------------------------

    @cached_property
    def _model(self) -> Model:
        options = self.options
        model: Model = later("polyseme.api").load(options.model, device=options.device, dtype=options.dtype)
        return model

    def _embedder(self) -> Embedder:
        options = self.options
        return self._model.embedder(**options.values(LayerOptions), batch_pieces=options.batch_pieces)

    def _embed(self, docs: Sequence[Any], embedder: Embedder) -> None:
        """Fill `doc.tensor` of each document."""
        make_document = later("polyseme.text.documents").make_document
        words = [[token.text for token in doc if not _is_blank(token)] for doc in docs]
        embedded = embedder([make_document(each, id=str(number)) for number, each in enumerate(words)])
        for doc, each in zip(docs, embedded, strict=True):
            _fill(doc, each.vectors)


def _fill(doc: Any, vectors: Any) -> None:
    """One row per token, zeros for blanks; what spaCy has computed of earlier vectors is dropped."""
    numpy: Any = later("numpy")
    tensor = numpy.zeros((len(doc), vectors.shape[1]), dtype=vectors.dtype)
    tensor[[token.i for token in doc if not _is_blank(token)]] = vectors
    doc.tensor = tensor
    doc.vector = doc.vector_norm = None
    hooks = {"has_vector": _is_there, "similarity": _cosine}
    doc.user_token_hooks |= hooks | {"vector": _token_vector}
    doc.user_span_hooks |= hooks | {"vector": _mean_vector}
    doc.user_hooks |= hooks | {"vector": _mean_vector}


def _report(embedder: Embedder) -> None:
    later("polyseme.embedding.flow").warn_unread(embedder.tally)


def _is_blank(token: Any) -> bool:
    return not token.text or token.text.isspace()


def _token_vector(token: Any) -> Any:
    return token.doc.tensor[token.i]


def _mean_vector(tokens: Any) -> Any:
    """Of a span or a document, as spaCy computes it: the mean over its tokens."""
    tensor = tokens.tensor
    return tensor.mean(axis=0) if len(tensor) else tensor.sum(axis=0)


def _cosine(one: Any, other: Any) -> float:
    """The similarity of two tokens, spans or documents; 0 where one has no vector but zeros."""
    norms = float(one.vector_norm) * float(other.vector_norm)
    return float(one.vector @ other.vector) / norms if norms else 0.0


def _is_there(tokens: Any) -> bool:
    """Whether there is a vector that is not all zeros."""
    return bool(tokens.vector.any())


def _raise(name: str, component: Any, docs: list[Any], error: Exception) -> None:
    raise error


def make_component(nlp: Any, name: str, **options: Any) -> TokenVectors:
    """The component, as spaCy makes it: `nlp.add_pipe("polyseme", config={…})`."""
    component = TokenVectors(**options)
    component.name = name
    return component


def _factory_signature() -> inspect.Signature:
    """Every option by name: spaCy reads them from the factory's signature, and checks no types."""
    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("nlp", "name")]
    options = signature_of(ComponentOptions).parameters.values()
    return inspect.Signature([*own, *(each.replace(annotation=Any) for each in options)])


make_component.__signature__ = _factory_signature()  # type: ignore[attr-defined]
_spacy.Language.factory(
    NAME,
    default_config=ComponentOptions().values(),
    assigns=["doc.tensor", "token.vector", "doc.vector"],
    func=make_component,
)
