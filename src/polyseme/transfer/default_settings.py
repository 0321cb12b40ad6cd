"""The settings of a fine-tuning that the user does not set, chosen by the encoder and the size of the data.

The choices follow Devlin et al. (2019, BERT), Peters, Ruder and Smith (2019, "To tune or not to tune?") and Howard and
Ruder (2018, ULMFiT), and are reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyseme.config import EncoderConfig
from polyseme.errors import OptionError
from polyseme.heads.bodies import PLAIN
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.finetune_settings import OF_STATES, FinetuneSettings, check_late_head
from polyseme.transfer.text_labels import Answers

MAX_PIECES = 512
"""Most pieces of a row of an encoder that reads any length."""
SMALL_WIDTH = 512
"""Encoders narrower than this are called small."""
FEW_ROWS = 10_000
"""Training sets smaller than this get one more epoch."""
FROZEN_STEPS = 10_000
"""About how many steps a head over frozen vectors is trained for."""
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

    Args:
        settings: those of the user.
        config: that of the encoder; None: there is no encoder, only learned inputs.
        kind: the kind of task.
        n_train: the number of training items.
        pooler: whether the model has one.
        starts: whether its rows have a start special ([CLS]).
        answers: what such a model's answers are read from (`answers_of`).
        min_steps: the number of epochs is chosen so that there are at least so many steps.
    """
    filler = _Filler(settings, config, kind, pooler=pooler, starts=starts, answers=answers)
    filler.fill_model()
    filler.fill_training(n_train, min_steps)
    return FilledSettings(filler.settings.replace(**filler.filled), tuple(filler.notes))


class _Filler:
    """Fills in one setting after another; later choices depend on earlier ones."""

    def __init__(
        self,
        settings: FinetuneSettings,
        config: EncoderConfig | None,
        kind: str,
        *,
        pooler: bool,
        starts: bool,
        answers: Answers,
    ) -> None:
        self.filled: dict[str, Any] = _of_ulmfit(settings, config, kind) if settings.ulmfit else {}
        self.settings = settings.replace(**self.filled)
        self.notes: list[str] = []
        self._config = config
        self._kind = KINDS[kind]
        self._pooler, self._starts, self._answers = pooler, starts, answers
        self._recurrent = config is not None and (config.memory == "state" or not config.follows_masks)
        self._static = config is not None and config.direction == "none"

    def _fill(self, name: str, value: Any, reason: str = "") -> Any:
        """The user's setting; where there is none, `value`, with a note on the reason."""
        if getattr(self.settings, name) is not None:
            return getattr(self.settings, name)
        self.filled[name] = value
        if reason:
            self.notes.append(f"{name.replace('_', ' ')} {value}: {reason}")
        return value

    # --- what is read, and by which head ------------------------------------------------------------------------------

    def fill_model(self) -> None:
        """The head, the stack and layer that it reads, and how many pieces a row may have."""
        settings = self.settings
        self._head = self._fill_head()
        self._batch_size: int = self._fill("batch_size", 32)
        if self._config is not None and self._head != "text":
            self._fill_stack()
        if settings.at != "input":
            check_late_head(settings.at, self._head)
            if self._config is None:
                raise OptionError(f"There is no model whose vectors could be read at {settings.at!r}. Name one (-m).")
            self._fill("head_layers", 2 if settings.at == "between" else 1)
        if self._config is not None:
            self._fill_length(self._config)
        if self._config is not None and self._head != "text":
            mixed = settings.frozen and len(set(self._config.widths)) == 1
            self._fill("layer", "mix" if mixed else "-1")
            if self._head == "bcn" and settings.readout is not None:
                raise OptionError("The head 'bcn' reads texts out in ways of its own. Leave the readout out.")
            self._fill("readout", self._usual_readout(self._config))
        if self._head != "text":
            over_pieces = not settings.frozen and self._config is not None
            over_pieces = over_pieces and not self._recurrent and not self._static
            usual = "mean" if self._config is None else self._config.usual_pooling
            self._fill("pool", "first" if over_pieces else usual)

    def _fill_head(self) -> str:
        """A linear layer over a fine-tuned encoder; over a frozen one a BiLSTM for words and pairs of texts."""
        settings = self.settings
        reads_states = any(getattr(settings, name) for name in OF_STATES)
        if self._answers == "text" and not settings.frozen and not reads_states:
            return str(self._fill("head", "text", "the answer is written, as by T5"))
        if settings.inputs is not None:
            return str(self._fill("head", self._kind.inputs_head))
        frozen = self._config is None or settings.frozen
        return str(self._fill("head", self._kind.frozen_head if frozen else "linear"))

    def _fill_stack(self) -> None:
        """Which stack the head reads; a decoder has a config of its own."""
        if self._answers == "decoder" and not self.settings.frozen and self._reads_decoder():
            stack = self._fill("stack", "decoder", "the text is read on both sides, as by BART")
        else:
            stack = self._fill("stack", "encoder")
        if stack == "decoder" and self._config is not None:
            self._config = self._config.decoder or self._config
            self._pooler = self._starts = False

    def _reads_decoder(self) -> bool:
        """Whether the task reads the decoder, as the original does: one vector per row, or places in it."""
        from_start = self.settings.readout in ("first", "pooled")
        over_whole = self._head in PLAIN and self.settings.inputs is None and not from_start
        return self._kind.reads_decoder(over_whole=over_whole)

    def _fill_length(self, config: EncoderConfig) -> None:
        if self.settings.chunk_length is not None:
            check_chunks(config)
            self._fill("read_last", READ_LAST)
            self._fill("max_pieces", config.window or MAX_CHUNKED)
            return
        window = config.window or MAX_PIECES
        most = window if config.direction == "none" else self._kind.max_pieces  # without context, length costs little
        self._fill("max_pieces", min(window, most))

    def _usual_readout(self, config: EncoderConfig) -> str:
        if self._head == "attention":
            return "last"
        if self.settings.frozen:
            return "max" if self._head.startswith("bilstm") else "mean"
        if config.direction in ("both", "any-order") and self._starts:
            return "pooled" if self._pooler else "first"
        if config.direction == "causal":
            return "concat" if config.memory == "state" else "last"
        return "max" if config.direction == "two-way" else "mean"

    # --- training -----------------------------------------------------------------------------------------------------

    def fill_training(self, n_train: int, min_steps: int) -> None:
        """Learning rates and the number of epochs."""
        steps = max(1, -(-n_train // self._batch_size))
        enough = -(-min_steps // steps)
        if self.settings.frozen or self._config is None:
            self._fill("learning_rate", 1e-3, "heads over frozen vectors (Adam, as for ELMo; Peters et al. 2018)")
            epochs = max(3, min(20, FROZEN_STEPS // steps))
            reason = f"about {FROZEN_STEPS:,} steps, 3 to 20 epochs"
        else:
            self._fill_learning_rates(self._config)
            epochs = 5 if self._recurrent else 4 if n_train < FEW_ROWS else 3
            reason = "" if self._recurrent else "BERT's 3, and one more for fewer than 10,000 items"
            if self.settings.ulmfit:
                epochs, reason = self._config.depth + ULMFIT_EPOCHS, ""
        self._fill("epochs", max(epochs, enough), reason if enough <= epochs else f"{min_steps} steps at least")

    def _fill_learning_rates(self, config: EncoderConfig) -> None:
        small = config.widths[-1] < SMALL_WIDTH
        if self._recurrent:
            reason = "recurrent encoders (ELMo: 1e-4; Peters, Ruder and Smith 2019)"
            self._fill("learning_rate", 1e-3 if small else 1e-4, reason)
            self._fill("head_learning_rate", 1e-3, "new weights beside a recurrent encoder")
        elif self._static:
            self._fill("learning_rate", 1e-3, "a table of static vectors is trained as fast as the head above it")
            self._fill("head_learning_rate", 1e-3, "the same")
        elif self._head == "text":
            self._fill("learning_rate", 3e-4, "models that write their answers take more (T5: 1e-3, with Adafactor)")
        elif small:
            reason = f"an encoder narrower than {SMALL_WIDTH} takes more than BERT's 2e-5 to 5e-5"
            self._fill("learning_rate", 1e-4, reason)
        else:
            self._fill("learning_rate", 3e-5, "between BERT's 2e-5 and 5e-5 (Devlin et al. 2019)")


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
