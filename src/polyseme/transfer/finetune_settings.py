"""How a task model is trained: everything that decides its numbers but the model and the data.

What a user does not set is chosen by what the encoder is, after Devlin et al. (2019, BERT), Peters, Ruder and Smith
(2019, "To tune or not to tune?") and Howard and Ruder (2018, ULMFiT), and reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from polyseme.config import EncoderConfig
from polyseme.embedding.decoder_stack import Stack
from polyseme.errors import OptionError
from polyseme.heads.bodies import PLAIN
from polyseme.heads.head_config import NAMES as HEAD_NAMES
from polyseme.options import check_choice
from polyseme.tasks.kinds import KINDS
from polyseme.training.optimizers import OptimizerSettings
from polyseme.training.schedules import Schedule
from polyseme.transfer.stacked_inputs import CHARACTERS, input_names
from polyseme.transfer.text_labels import Answers
from polyseme.verb_options.task_options import FinetuneOptions, TransferDtype, VectorsAt

Readout = Literal["first", "pooled", "last", "mean", "max", "concat"]

MAX_PIECES = 512
"""Most pieces of a row of an encoder that reads any length."""
SMALL_WIDTH = 512
"""Encoders narrower than this are called small."""
FEW_ROWS = 10_000
"""Training sets smaller than this get one more epoch."""
FROZEN_STEPS = 10_000
"""About how many steps a head over frozen vectors is trained for."""
STEPS = {
    "layer_decay": (1.0, 1 / 2.6),
    "schedule": ("linear", "slanted-triangular"),
    "betas": ((0.9, 0.999), (0.7, 0.99)),
    "gradual_unfreezing": (False, True),
}
"""Options of which None is decided by ULMFiT alone: what they are without it, and with it."""
ULMFIT = {
    "learning_rate": 0.01 / 2.6,
    "head_learning_rate": 0.01,
    "readout": "concat",
    "head": "mlp-batchnorm",
    "inner_width": 50,
    "chunk_length": 70,
    "batch_size": 64,
}
"""Other settings of ULMFiT (Howard and Ruder 2018; fastai's classifier). The head is the top group of layers."""
ULMFIT_EPOCHS = 5
"""So many more than the encoder has layers, so that all of them learn together in the last four."""
READ_LAST = 1400
"""Pieces of a text in chunks whose states are read out, as in fastai."""
MAX_CHUNKED = 1 << 14
"""Most pieces of a row that is read in chunks."""
LATE_HEADS = ("bilstm", "bilstm-crf")
"""Heads that can read a model's vectors later than at their input."""
OF_STATES = ("layer", "stack", "pool", "readout", "inner_width", "reread_inputs", "inputs", "dropout", "head_layers")
"""Settings of heads that read vectors, which mean nothing for one that writes."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(FinetuneOptions):
    """The checked options of a fine-tuning; None is what suits the encoder (`fill_settings`)."""

    layer: str | None = None
    layer_decay: float = 1.0
    schedule: str = "linear"
    betas: tuple[float, float] = (0.9, 0.999)
    gradual_unfreezing: bool = False
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        Schedule(kind=self.schedule, warmup=self.warmup)  # type: ignore[arg-type]
        object.__setattr__(self, "betas", tuple(self.betas))
        check_choice("dtype", self.dtype, get_args(TransferDtype))
        choices = {"readout": get_args(Readout), "head": tuple(HEAD_NAMES), "stack": get_args(Stack)}
        for name, names in choices.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), names)
        object.__setattr__(self, "inputs", input_names(self.inputs))
        self._place_vectors()
        bounds = {"epochs": 1, "batch_size": 1, "max_pieces": 8, "evaluations": 1, "inner_width": 1, "head_layers": 1}
        bounds |= {"chunk_length": 1, "read_last": 1}
        for name, least in bounds.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"The {name} of a fine-tuning must be at least {least}. Got {value} instead.")
        for name in ("learning_rate", "head_learning_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"The {name} of a fine-tuning must be above 0. Got {value} instead.")
        if not 0 < self.layer_decay <= 1:
            raise OptionError(f"The layer_decay must be above 0 and at most 1. Got {self.layer_decay} instead.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise OptionError(f"The dropout must be from 0 to below 1. Got {self.dropout} instead.")
        OptimizerSettings(betas=self.betas)
        if self.reinit_layers < 0 or self.stride < 0 or self.weight_decay < 0:
            raise OptionError("The settings reinit_layers, stride and weight_decay must be 0 or more.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise OptionError(
                f"The seeds must be different whole numbers from 0 on, one at least. Got {list(self.seeds)} instead."
            )
        if self.head == "text":
            self._check_text()
        if self.ulmfit and self.frozen:
            raise OptionError("ULMFiT fine-tunes a language model, and a frozen one does not learn. Leave one out.")
        if self.frozen:
            useless = {"gradual_unfreezing": False, "reinit_layers": 0, "layer_decay": 1.0, "chunk_length": None}
            for name, default in useless.items():
                if getattr(self, name) != default:
                    raise OptionError(f"A frozen encoder does not learn, so {name} means nothing. Leave it out.")

    def _place_vectors(self) -> None:
        """Where the model's vectors are read late, the model is frozen, and the BiLSTM reads something else first."""
        check_choice("at", self.at, get_args(VectorsAt))
        if self.between and self.at == "output":
            raise OptionError(
                "between (--between) is short for at='between', and at is 'output'. Leave one of both out."
            )
        if self.between:
            object.__setattr__(self, "at", "between")
        if self.at == "input":
            return
        if self.head is not None:
            check_late_head(self.at, self.head)
        if self.at == "between" and self.head_layers == 1:
            raise OptionError(
                "The model's vectors are to be read between the first layer of the head's BiLSTM and the second "
                "(--between), and it has one layer. Give it two (--head-layers 2), or leave the number of layers out."
            )
        if self.reread_inputs:
            raise OptionError(
                f"The model's vectors are read in one place, {self.at!r}; reread_inputs has them read at the input and "
                "at the output. Leave one of both out."
            )
        object.__setattr__(self, "frozen", True)
        object.__setattr__(self, "inputs", self.inputs or (CHARACTERS,))

    def _check_text(self) -> None:
        if self.frozen:
            raise OptionError(
                "The head 'text' has nothing of its own to learn, so the model cannot stay frozen with it."
            )
        for name in OF_STATES:
            if getattr(self, name):
                raise OptionError(
                    f"The head 'text' writes the label with the model's decoder and reads no vectors, so {name} means "
                    "nothing. Leave it out, or take another head."
                )

    @property
    def optimizer(self) -> OptimizerSettings:
        """The update rule: AdamW."""
        rate = float(self.learning_rate or 1e-4)
        return OptimizerSettings(lr=rate, betas=self.betas, weight_decay=self.weight_decay)

    @property
    def learning_rates(self) -> Schedule:
        """How the learning rate moves."""
        return Schedule(kind=self.schedule, warmup=self.warmup)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FilledSettings:
    """Settings without any None, and notes on those that were chosen."""

    settings: FinetuneSettings
    notes: tuple[str, ...]


def fill_settings(
    settings: FinetuneSettings,
    config: EncoderConfig | None,
    *,
    kind: str,
    n_train: int,
    pooler: bool,
    starts: bool,
    answers: Answers = "encoder",
    min_steps: int = 0,
) -> FilledSettings:
    """Fill in what is None, by the encoder's direction and width and by the size of the data.

    `pooler` is whether the model has one, `starts` whether its rows have a start special ([CLS]), `answers` what such
    a model's answers are read from (`answers_of`). Without a config there is no encoder, only learned inputs. Epochs
    are so many that there are `min_steps` at least.
    """
    notes: list[str] = []
    filled: dict[str, Any] = {}
    if settings.ulmfit:
        filled |= _of_ulmfit(settings, config, kind)
        settings = settings.replace(**filled)

    def fill(name: str, value: Any, reason: str = "") -> Any:
        """The user's setting; where there is none, `value`, with a note on the reason."""
        if getattr(settings, name) is not None:
            return getattr(settings, name)
        filled[name] = value
        if reason:
            notes.append(f"{name.replace('_', ' ')} {value}: {reason}")
        return value

    recurrent = config is not None and (config.memory == "state" or not config.follows_masks)
    static = config is not None and config.direction == "none"
    writes = answers == "text" and not settings.frozen and not any(getattr(settings, name) for name in OF_STATES)
    head = fill(
        "head", "text" if writes else _head(settings, kind, frozen=config is None or settings.frozen),
        "the answer is written, as by T5" if writes else "",
    )  # fmt: skip
    batch = fill("batch_size", 32)
    if config is not None and head != "text":
        of_decoder = answers == "decoder" and not settings.frozen and _reads_decoder(settings, kind, head)
        stack = fill(
            "stack", "decoder" if of_decoder else "encoder",
            "the text is read on both sides, as by BART" if of_decoder else "",
        )  # fmt: skip
        if stack == "decoder":
            config, pooler, starts = config.decoder or config, False, False
    if settings.at != "input":
        check_late_head(settings.at, head)
        if config is None:
            raise OptionError(f"There is no model whose vectors could be read at {settings.at!r}. Name one (-m).")
        fill("head_layers", 2 if settings.at == "between" else 1)
    if config is not None and settings.chunk_length is not None:
        check_chunks(config)
        fill("read_last", READ_LAST)
        fill("max_pieces", config.window or MAX_CHUNKED)
    elif config is not None:
        window = config.window or MAX_PIECES
        most = window if config.direction == "none" else KINDS[kind].max_pieces  # without context, length costs little
        fill("max_pieces", min(window, most))
    if config is not None and head != "text":
        fill("layer", "mix" if settings.frozen and len(set(config.widths)) == 1 else "-1")
        if head == "bcn" and settings.readout is not None:
            raise OptionError("The head 'bcn' reads texts out in ways of its own. Leave the readout out.")
        fill("readout", _readout(settings, config, head, pooler=pooler, starts=starts))
    if head != "text":
        over_pieces = not settings.frozen and config is not None and not recurrent and not static
        usual = "mean" if config is None else config.usual_pooling
        fill("pool", "first" if over_pieces else usual)
    steps = max(1, -(-n_train // batch))
    if settings.frozen or config is None:
        fill("learning_rate", 1e-3, "heads over frozen vectors (Adam, as for ELMo; Peters et al. 2018)")
        epochs = max(3, min(20, FROZEN_STEPS // steps))
        enough = -(-min_steps // steps)
        of_steps = f"about {FROZEN_STEPS:,} steps, 3 to 20 epochs"
        fill("epochs", max(epochs, enough), of_steps if enough <= epochs else f"{min_steps} steps at least")
        return FilledSettings(settings.replace(**filled), tuple(notes))
    small = config.widths[-1] < SMALL_WIDTH
    if recurrent:
        fill("learning_rate", 1e-3 if small else 1e-4, "recurrent encoders (ELMo: 1e-4; Peters, Ruder and Smith 2019)")
        fill("head_learning_rate", 1e-3, "new weights beside a recurrent encoder")
    elif static:
        fill("learning_rate", 1e-3, "a table of static vectors is trained as fast as the head above it")
        fill("head_learning_rate", 1e-3, "the same")
    elif head == "text":
        fill("learning_rate", 3e-4, "models that write their answers take more (T5: 1e-3, with Adafactor)")
    elif small:
        fill("learning_rate", 1e-4, f"an encoder narrower than {SMALL_WIDTH} takes more than BERT's 2e-5 to 5e-5")
    else:
        fill("learning_rate", 3e-5, "between BERT's 2e-5 and 5e-5 (Devlin et al. 2019)")
    epochs = 5 if recurrent else 4 if n_train < FEW_ROWS else 3
    if settings.ulmfit:
        epochs = config.depth + ULMFIT_EPOCHS
    enough = -(-min_steps // steps)
    usual = "" if recurrent or settings.ulmfit else "BERT's 3, and one more for fewer than 10,000 items"
    fill("epochs", max(epochs, enough), usual if enough <= epochs else f"{min_steps} steps at least")
    return FilledSettings(settings.replace(**filled), tuple(notes))


def check_late_head(at: str, head: str) -> None:
    """Refuse a head without a BiLSTM that could read vectors later than at its input."""
    if head not in LATE_HEADS:
        raise OptionError(
            f"Vectors can be read at {at!r} by a BiLSTM over words, the heads {' and '.join(LATE_HEADS)}. Got the head "
            f"{head!r}; name another (--head), or leave the place out (--at, --between)."
        )


def _of_ulmfit(settings: FinetuneSettings, config: EncoderConfig | None, kind: str) -> dict[str, Any]:
    """What ULMFiT stands for besides the options that it shares with `settings_of`, where the user has set nothing."""
    if config is None:
        raise OptionError("ULMFiT fine-tunes a language model, and there is none. Name one, or leave out ulmfit.")
    if not KINDS[kind].judges_texts:
        raise OptionError(f"ULMFiT classifies texts, and {kind} is a task of words. Leave out ulmfit.")
    chosen = dict(ULMFIT)
    if config.memory != "state":
        del chosen["chunk_length"]
    if settings.head is not None:
        chosen.pop("inner_width")
    return {name: value for name, value in chosen.items() if getattr(settings, name) is None}


def check_chunks(config: EncoderConfig) -> None:
    """Refuse to read in chunks what carries no state from one to the next."""
    if config.memory != "state" or config.direction != "causal":
        raise OptionError(
            "Rows are read in chunks (chunk_length) by encoders that carry a recurrent state from one to the next: "
            "LSTM language models. This one has none. Leave chunk_length out."
        )


def _head(settings: FinetuneSettings, kind: str, *, frozen: bool) -> str:
    """A linear layer over a fine-tuned encoder; over a frozen one a BiLSTM for words and pairs of texts."""
    if settings.inputs is not None:
        return KINDS[kind].inputs_head
    return KINDS[kind].frozen_head if frozen else "linear"


def _reads_decoder(settings: FinetuneSettings, kind: str, head: str) -> bool:
    """Whether the task reads the decoder, as the original does: one vector per row, or places in it."""
    from_start = settings.readout in ("first", "pooled")
    over_whole = head in PLAIN and settings.inputs is None and not from_start
    return KINDS[kind].reads_decoder(over_whole=over_whole)


def _readout(settings: FinetuneSettings, config: EncoderConfig, head: str, *, pooler: bool, starts: bool) -> str:
    if head == "attention":
        return "last"
    if settings.frozen:
        return "max" if head.startswith("bilstm") else "mean"
    if config.direction in ("both", "any-order") and starts:
        return "pooled" if pooler else "first"
    if config.direction == "causal":
        return "concat" if config.memory == "state" else "last"
    return "max" if config.direction == "two-way" else "mean"


def settings_of(options: FinetuneOptions) -> FinetuneSettings:
    """The settings among a verb's options.

    >>> settings_of(FinetuneOptions(layer=-1, seeds=2)).seeds
    (0, 1)
    """
    values = options.values(FinetuneOptions)
    for name, (usual, of_ulmfit) in STEPS.items():
        if values[name] is None:
            values[name] = of_ulmfit if options.ulmfit else usual
    layer = None if options.layer is None else str(options.layer)
    if isinstance(options.seeds, int) and options.seeds < 1:
        raise OptionError(f"There must be one seed at least. Got {options.seeds} instead.")
    seeds = tuple(range(options.seeds) if isinstance(options.seeds, int) else options.seeds)
    return FinetuneSettings(**{**values, "layer": layer, "seeds": seeds})
