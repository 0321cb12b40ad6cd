"""The card of a model: README.md in its folder, with front matter as the Hugging Face hub reads it.

What a model is and how it is used follows from the model itself; the room that trained it adds sections (data,
training, cost, scores) and figures.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.bundle import Bundle
from polyseme.convert.pruned_heads import write_pruned
from polyseme.convert.sentence_transformers import MODEL_CARD, MODULES
from polyseme.files.atomic import AnyPath

LIBRARY = "polyseme"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_. /-]*[A-Za-z0-9]")
_RESERVED = {"true", "false", "yes", "no", "on", "off", "null", "nan", "inf"}


class Use(NamedTuple):
    """What a model is for: the hub's name of the task, a command, and the class of transformers that loads it."""

    task: str
    command: str
    auto_class: str | None


EMBED = Use("feature-extraction", "polyseme embed texts.txt -m {folder} -o vectors.parquet", "AutoModel")
SENTENCES = Use(
    "sentence-similarity", "polyseme embed texts.txt --per text -m {folder} -o vectors.parquet", "SentenceTransformer"
)
OF_OUTPUTS: Mapping[str, Use] = {
    "masked": Use("fill-mask", 'polyseme fill "The vase [MASK] into pieces." -m {folder}', "AutoModelForMaskedLM"),
    "causal": Use("text-generation", 'polyseme generate "In the beginning" -m {folder}', "AutoModelForCausalLM"),
}
"""Output → what a model that has it is for; the first that a model has counts."""
IN_INT8 = (
    "> The matrices of this model are stored in int8, as `--dtype int8` computes with them. polyseme alone loads the "
    "folder; `polyseme convert -m FOLDER --dtype fp32 -o OUTPUT` writes one for other libraries."
)
"""What the card of a model in int8 begins with."""
FOR_SENTENCES = (
    "> The encoder of the model below, without its outputs, as sentence-transformers opens it: "
    "`SentenceTransformer(path)`."
)
TWO_STACKS = Use("text-generation", 'polyseme generate "In the beginning" -m {folder}', "AutoModelForSeq2SeqLM")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure for the hub's table of results."""

    metric: str
    value: float
    split: str


@dataclass(frozen=True, kw_only=True)
class CardContent:
    """What is known of a model besides the model itself."""

    title: str
    origin: str = ""
    """A sentence or two on where the model comes from."""
    use: Use | None = None
    """What it is for; None: by its outputs."""
    tags: Sequence[str] = ()
    base_model: str | None = None
    """On the hub, as owner/name."""
    dataset: str = ""
    """What the figures are measured on."""
    figures: Sequence[Figure] = ()
    sections: Sequence[tuple[str, str]] = ()
    """Heading and text of each."""


def model_card(bundle: Bundle | None, content: CardContent) -> str:
    """The card, in Markdown with YAML front matter."""
    use = content.use or use_of(bundle)
    is_sentence_model = use is SENTENCES
    fields: dict[str, Any] = {
        "library_name": "sentence-transformers" if is_sentence_model else LIBRARY,
        "pipeline_tag": use.task,
        "tags": [*dict.fromkeys([LIBRARY, *_tags(bundle, is_sentence_model), *content.tags])],
    }
    if content.base_model is not None:
        fields["base_model"] = content.base_model
    if content.figures:
        fields["model-index"] = [{"name": content.title, "results": [_results(use.task, content)]}]
    described = " ".join(each for each in (_describe(bundle), content.origin) if each)
    parts = [
        front_matter(fields).rstrip(),
        f"# {content.title}",
        described,
        _usage(bundle, use, content.title),
        *(f"## {heading}\n\n{text}" for heading, text in content.sections),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain_card(bundle: Bundle, folder: AnyPath) -> str | None:
    """The card of a model that is saved as it was loaded: nothing new where it came with one of its own."""
    if MODEL_CARD in bundle.extra_files:
        return None
    return model_card(bundle, CardContent(title=Path(folder).resolve().name, origin="Saved by polyseme."))


def card_by_precision(card: str, *, int8: bool) -> str:
    """The card of a model as it is stored: in int8 with a note that other libraries do not load it, else without."""
    card = card.replace(f"{IN_INT8}\n\n", "")
    if not int8:
        return card
    head, dashes, body = card.partition("\n---\n") if card.startswith("---") else ("", "", card)
    return f"{head}{dashes}\n{IN_INT8}\n\n{body.lstrip()}"


def card_for_sentences(card: str) -> str:
    """The card of a model whose encoder is saved for sentence-transformers: its use has changed, which is noted."""
    changed = changed_front_matter(
        card,
        library_name="sentence-transformers",
        pipeline_tag=SENTENCES.task,
        tags=[LIBRARY, "sentence-transformers", EMBED.task, SENTENCES.task],
    )
    head, dashes, body = changed.partition("\n---\n")
    return f"{head}{dashes}\n{FOR_SENTENCES}\n\n{body.lstrip()}"


def use_of(bundle: Bundle | None) -> Use:
    """What a model is for, by its files and outputs."""
    if bundle is None:
        return EMBED
    if MODULES in bundle.extra_files:
        return SENTENCES
    if bundle.decoder is not None:
        return TWO_STACKS if bundle.outputs else EMBED
    return next((use for name, use in OF_OUTPUTS.items() if name in bundle.outputs), EMBED)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def listed_files(names: Iterable[str], most: int = 10) -> str:
    """Names of files without their folders, as many as a card shows.

    >>> listed_files(["texts/b.txt", "texts/a.txt", "more/c.txt"], most=2)
    '`a.txt`, `b.txt` and 1 more'
    """
    short = sorted({Path(name).name for name in names})
    more = f" and {len(short) - most:,} more" if len(short) > most else ""
    return ", ".join(f"`{name}`" for name in short[:most]) + more


def _describe(bundle: Bundle | None) -> str:
    if bundle is None:
        return ""
    config = bundle.config
    return (
        f"A model of the family {bundle.family.name}: {config.depth} layers of width {config.widths[-1]:,}, "
        f"{config.n_pieces:,} pieces, {bundle.n_parameters():,} parameters."
    )


def _tags(bundle: Bundle | None, is_sentence_model: bool) -> list[str]:
    names = [] if bundle is None else [bundle.family.name]
    return [*names, "sentence-transformers", EMBED.task, SENTENCES.task] if is_sentence_model else names


def _usage(bundle: Bundle | None, use: Use, folder: str) -> str:
    """A command, and what other libraries load it with."""
    name = folder if re.fullmatch(r"[\w./-]+", folder) else json.dumps(folder, ensure_ascii=False)
    command = f"```sh\n{use.command.format(folder=name)}\n```"
    if bundle is None or use.auto_class is None:
        return command
    if use is SENTENCES:
        return f"{command}\n\nOther libraries open the folder with `SentenceTransformer(path)`."
    if bundle.family.reference is None or write_pruned(bundle.config):  # transformers opens no pruned models
        return command
    return f"{command}\n\nOther libraries load the folder with `transformers.{use.auto_class}.from_pretrained(path)`."


def _results(task: str, content: CardContent) -> dict[str, Any]:
    """Figures as the hub's `model-index` has them."""
    dataset = content.dataset or content.title
    return {
        "task": {"type": task},
        "dataset": {"type": re.sub(r"[^a-z0-9]+", "-", dataset.lower()).strip("-") or "data", "name": dataset},
        "metrics": [
            {"type": each.metric, "name": f"{each.metric} ({each.split})", "value": round(each.value, 6)}
            for each in content.figures
            if math.isfinite(each.value)
        ],
    }


# --- front matter -----------------------------------------------------------------------------------------------------


def front_matter(fields: Mapping[str, Any]) -> str:
    r"""Fields as YAML between two lines of dashes.

    >>> print(front_matter({"license": "mit", "tags": ["bert", "yes"], "model-index": [{"name": "x: y"}]}), end="")
    ---
    license: mit
    tags:
    - bert
    - "yes"
    model-index:
    - name: "x: y"
    ---
    """
    return "\n".join(["---", *_yaml(fields), "---"]) + "\n"


def changed_front_matter(card: str, **fields: Any) -> str:
    r"""A card with other values of some fields of its front matter; all else stays as it is written.

    >>> print(changed_front_matter("---\nlicense: mit\ntags:\n- bert\n- gpt\n---\n# Title\n", tags=["t5"]), end="")
    ---
    license: mit
    tags:
    - t5
    ---
    # Title
    """
    match = re.match(r"\A---\r?\n(.*?)^---[ \t]*\r?\n?", card, flags=re.DOTALL | re.MULTILINE)
    if match is None:
        return f"{front_matter(fields)}\n{card}"
    # a field begins at the start of a line, and takes the lines after it that are indented, items, blank or comments
    blocks = re.findall(r"^[^\s#-][^\n]*\n(?:[ \t#-][^\n]*\n|\n)*|^[^\n]*\n", match[1], flags=re.MULTILINE)
    others = [block for block in blocks if block.partition(":")[0].strip("\"' ") not in fields]
    return "---\n" + "".join(others) + front_matter(fields).removeprefix("---\n") + card[match.end() :]


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """The lines of a mapping or a list; strings that are more than plain words are quoted as JSON has them."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(each, Mapping):
                yield f"{indent}{name}:"
                yield from _yaml(each, f"{indent}  ")
            elif isinstance(each, str | int | float | None):
                yield f"{indent}{name}: {_scalar(each)}"
            else:
                yield f"{indent}{name}:"
                yield from _yaml(each, indent)
        return
    for each in value:
        if isinstance(each, Mapping):
            first, *others = _yaml(each, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from others
        else:
            yield f"{indent}- {_scalar(each)}"


def _scalar(value: str | int | float | None) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # or YAML would read a string
    return text
