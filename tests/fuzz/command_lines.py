"""Random command lines: one that works, with options added, changed, repeated and left out.

Options, their kinds and what their help lists as values come from the commands themselves, and so from the records of
`verb_options/`. A new option is tried without a change here; a new verb needs a line that works (`LINES`).
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import click

from fuzz.workplace import FAMILIES, NAMES, TASKS
from polyseme.cli import VERBS
from polyseme.cli.sweep import swept_command
from polyseme.extras import later
from polyseme.recipes.recipe_table import RECIPES

_TINY = "--set n_layers=1 --set width=16 --set n_heads=2 --set inner_width=32 --batch-size 2 --length 16"
_FIT = "--epochs 1 --batch-size 8 --device cpu"
LINES: Mapping[str, Sequence[str]] = {
    "embed": (
        "texts.txt -m models/bert -o out.npz",
        "rows.csv --field text -m models/bert --fields label -o out.parquet",
        "texts.txt rows.jsonl -m models/gpt2 -o out.jsonl",
        "trees.conllu -m models/lstm -o out.h5",
        "- -m models/t5 --per text -o out.safetensors",
        "texts/ -m models/static --long -o out.csv",
    ),
    "similar": (
        "'Dawn [broke].' --in texts.txt -m models/bert -o out.html",
        "'Dawn [broke].' --index models/index -m models/bert",
        "'Dawn [broke].' --in rows.csv --field text -m models/gpt2 --against 0",
    ),
    "senses": (
        "broke --in texts.txt --names none -m models/bert -o out.html",
        "crane --in texts/ -m models/bert --names models/bert -o out.json",
        "broke --in texts.txt --apply models/senses.json -m models/bert",
    ),
    "concordance": (
        "broke --in texts.txt -o out.html",
        "break --match lemma --in trees.conllu -o out.csv",
        "'br[a-z]+' --match pattern --in texts/ --sample 3",
        "broke --in texts.txt --like 'Dawn [broke].' -m models/bert -o out.json",
    ),
    "compare": (
        "broke --in texts.txt --in other.txt -m models/bert -o out.html",
        "--in texts.txt --in other.txt --min-uses 2 -m models/gpt2 -o out.csv",
    ),
    "pieces": ("'The vase broke.' -m models/bert -o out.npz", "'Dawn broke' -m models/gpt2 --attentions -o out.npz"),
    "pretrain": (
        f"texts.txt --recipe bert-tiny --budget 2steps --vocab-size 200 --documents line {_TINY} -o run",
        f"models/corpus --recipe bert-tiny --budget 2steps {_TINY} -o run",
        f"texts.txt --recipe gpt-tiny --budget 2steps --vocab-size 300 --documents line {_TINY} -o run",
        "texts.txt --recipe kneser-ney --budget 2steps --documents line --set order=2 -o run",
        "texts.txt -m models/bert --budget 2steps --documents line --batch-size 2 -o run",
        "--resume models/run --budget 2steps",
    ),
    "published": ("", "glue -o out.html", "wmt --system Transformer -o out.csv"),
    "recipes": ("", "bert-base", "gpt-tiny --budget 3steps"),
    "distill": (
        "texts.txt -m models/bert --layers 1 --budget 2steps --documents line --batch-size 2 -o run",
        f"--train rows.csv -m models/stars --layers 1 --text text --label label --budget 2steps {_FIT} -o run",
    ),
    "corpus": (
        "texts.txt --vocab-size 200 --workers 1 -o out",
        "rows.csv --field text --tokenizer byte-bpe --frame gpt2 --vocab-size 300 --workers 1 -o out",
        "--source texts.txt --target texts.txt --tokenizer byte-bpe --frame transformer --vocab-size 300 --workers 1 "
        "-o out",
    ),
    "claims": ("", "heads-follow-relations --show"),
    "sweep": (
        f"pretrain models/corpus --recipe bert-tiny --budget 1steps {_TINY} --over mask_rate=0.1,0.4 "
        "--jobs 0 -o out.html",
        f"finetune classify --train rows.csv --text text --label label {_FIT} --frozen -m models/bert "
        "--over learning_rate=0.01,0.1 --jobs 0 -o out.html",
    ),
    "finetune": (
        f"classify --train rows.csv --text text --label label -m models/bert {_FIT} -o out",
        f"tag --train tags.conll -m models/bert --frozen {_FIT} -o out",
        f"pair --train pairs.tsv --text 1 --second 2 --label 3 -m models/gpt2 {_FIT} -o out",
        f"tag --train trees.conllu --label upos -m models/lstm {_FIT} -o out",
    ),
    "predict": (
        "rows.csv --field text -m models/stars -o out.jsonl",
        "texts.txt -m models/tagger -o out.conll",
        "pairs.tsv --field 1 --second 2 -m models/nli",
        "texts.txt -m models/stars -o out.parquet",
    ),
    "tradeoffs": ("rows.csv --text text --label label -m models/stars --forms full,bf16 --rounds 1 -o out.html",),
    "benchmark": (f"glue --data texts -m models/bert {_FIT} -o out.html",),
    "prune": (
        "--dev texts.txt -m models/bert --points 2 -o out",
        "--dev rows.csv --text text --label label -m models/stars --points 1 -o out",
        "--dev texts.txt --train other.txt --method gates --gate-steps 2 --points 1 -m models/bert -o out",
    ),
    "generate": (
        "'The vase' -m models/gpt2 --max-new 4",
        "'The vase' 'Dawn' -m models/lstm --max-new 4 --beam 2 -o out.jsonl",
        "--in texts.txt -m models/t5 --max-new 3 --greedy -o out.txt",
        "'The vase' -m models/ngrams --max-new 3",
    ),
    "score": (
        "texts.txt -m models/gpt2 -o out.csv",
        "texts.txt -m models/bert --by piece -o out.html",
        "texts.txt -m models/ngrams",
        "rows.jsonl --field text -m models/lstm --by text -o out.parquet",
        "marked.txt --marked -m models/bert -o out.jsonl",
    ),
    "interpolate": ("-m models/ngrams -m models/ngrams --held-out texts.txt -o out",),
    "evaluate": (
        "good_bad.tsv -m models/gpt2 -o out.html",
        "bleu --in texts.txt --reference texts.txt -o out.json",
        "rows.csv --text text --label label -m models/stars -o out.tsv",
        "blimp --data good_bad.tsv -m models/bert",
    ),
    "fill": ("'The [MASK] broke.' -m models/bert", "'The [MASK] [MASK].' --whole-words -m models/bert"),
    "next": ("'Dawn broke.' 'The vase broke.' -m models/bert",),
    "probe": (
        "tag --train trees.conllu --test dev.conllu --label upos --control -m models/bert -o out.html",
        "tag --train trees.conllu --dev dev.conllu --label upos -m models/bert -o out.html",
        "tag --train tags.conll --probe mlp --hidden 4 -m models/gpt2 -o out.json",
        "tag --structural depth --train trees.conllu --test dev.conllu --rank 2 -m models/bert -o out.html",
    ),
    "attention": (
        "'The vase broke.' -m models/bert -o out.html",
        "'Dawn' --target 'Dawn broke' -m models/t5 -o out.tsv",
    ),
    "lens": ("'The [MASK] broke.' -m models/bert -o out.html", "'The vase' -m models/gpt2 --top 2"),
    "geometry": (
        "--in texts.txt -m models/bert -o out.html",
        "--in texts/ --against models/gpt2 -m models/bert -o out.csv",
    ),
    "heads": ("dev.conllu --train trees.conllu --min-count 1 -m models/bert -o out.html",),
    "attribute": (
        "'the vase is flat' -m models/stars --steps 2 -o out.html",
        "'the vase' 'a crane' -m models/nli --steps 2",
        "'the vase broke' --word vase -m models/tagger --steps 2 -o out.json",
        "--in texts.txt -m models/stars --steps 2 -o out.tsv",
    ),
    "uses": (
        "broke --in texts.txt -m models/bert -o out.html",
        "broke --sentence 'Dawn broke.' --sentence 'The vase broke.' -m models/bert -o out.json",
    ),
    "patch": ("'The vase [broke]' 'The news [is]' -m models/bert -o out.html",),
    "cells": (
        "'He said \"dawn\"' --property 'inside quotes' -m models/lstm -o out.html",
        "--in texts.txt --cell 1,2 -m models/lstm",
    ),
    "models": ("",),
    "show": ("-m models/bert", "-m models/run --json", "-m models/bert --length 6 -o out.html"),
    "convert": (
        "-m models/bert -o out",
        "-m models/bert --to word2vec --in texts.txt --min-count 1 -o out.vec",
        "-m models/ngrams --to arpa -o out.arpa",
        "-m models/stars --dtype int8 -o out",
        "-m models/bert --to sentence-transformers -o out",
    ),
}
"""Lines that work, or nearly so: what is drawn is added to them. Training in them is short."""

KEPT = ("--budget", "--set", "--epochs", "--jobs", "--recipe", "--gate-steps")
"""Options that are not left out: by default, work takes minutes."""


def _split(text: str) -> list[str]:
    return text.split("|")


_MODELS = [f"models/{name}" for name in (*FAMILIES, *TASKS, "run", "ngrams", "corpus", "damaged", "nowhere", "index")]
_FILES = [*NAMES, "texts", "texts/", "texts/*.txt", "nowhere.txt", "*.none", "-", "models/vectors.npz"]
_ENDINGS = _split("npz|parquet|safetensors|h5|jsonl|json|csv|tsv|html|png|svg|txt|md|conll|vec|bin")
_OUTPUTS = [
    *(f"out.{ending}" for ending in _ENDINGS),
    *_split("out|out/|new/deep/out.html|there|there.html|there.npz|texts.txt/out.json|out.HTML|out.npz.gz|texts.txt"),
]
ABSURD = (
    *_split(
        "| |x|-1|0|1e400|nan|--|--force|-x|None|null|[]|{}|true|,|,,|=|:|a=b|%|../..|/|.|..|~|/dev/null|/nowhere/at/all"
    ),
    *_split("'|\"|[|(|*|\\|🙂|\udcff|<script>|0:0|1:2:3|٣|\u202etfel|\x1b[31mred|a\nb|\t"),
    "é" * 40,
    "long" * 200,
)
_WHOLE = (
    _split("1|2|3|5|8"),
    _split("0|-1|1000|2147483648|1000000000000|99999999999999999999"),
    _split("1.5|1e3|0x10|٣|1_000"),
)
_REAL = _split("0.1|0.5|1|2|0.9"), _split("0|1|-0.1|1.0001|1e-300|1e300|inf|-inf|nan"), _split("1,5|1/2|50%")
_TEXTS = [*_split("The vase broke.|Dawn [broke].|The [MASK] broke.|broke|[MASK]|vase crane|[[a]] [b"), "the " * 60]
_POOLS: Mapping[str, Sequence[str]] = {
    "OUTPUT": _OUTPUTS,
    "MODEL": _MODELS,
    "MODELS": [*_MODELS, "models/stars,models/nli"],
    "LAYER|MODEL": [*_MODELS, "0", "-1", "mean:1:2"],
    "FILE": _FILES,
    "INPUT": _FILES,
    "INPUT...": _FILES,
    "[TEXTS]...": [*_FILES, "a=1:texts.txt", "a=0:texts.txt", "=:", "models/corpus"],
    "NAME|FILE": [*_FILES, "blimp", "agreement", "lambada", "bleu", "cloze"],
    "PATH": _FILES,
    "TREEBANK": [*_FILES, "ud-ewt"],
    "[NAME]": [*list(RECIPES)[:6], "heads-follow-relations", "nothing"],
    "[TABLE]": _split("glue|wmt|nothing"),
    "TEXT": _TEXTS,
    "TEXT...": _TEXTS,
    "PROMPT...": _TEXTS,
    "FOLDER": _split("models|models/index|models/corpus|texts|there|fresh|texts.txt|nowhere"),
    "RUN": _split("models/run|models/corpus|models/bert|nowhere|texts.txt"),
    "AMOUNT": _split("1steps|2steps|1e3pieces|1epochs|0steps|-1steps|nansteps|2parsecs|1|1e5flops|0.01s"),
    "TIME": _split("1s|0s|-1s|1min|soon|nan|1e400h"),
    "LAYER": _split("0|1|-1|2|all|mean:1:2|sum:0:-1|concat:-2:-1|mix|99|-99|mean:2:1|mean:a:b|mean:"),
    "LAYERS": _split("all|0|0,1|-1|mix|all,mix|0,0|99|1,,2"),
    "N": _split("0|1|0,1|-1|1,1|99|2,x"),
    "SHARE": _split("50%|0%|100%|1|0|36|-1|101%|x%"),
    "SHARES": _split("50%,100%|4,8|0%|1%,1%|200%|4,,8"),
    "NUMBERS": _split("1|1M|10,20|0|-1|1K,x"),
    "BETA1,BETA2": _split("0.9,0.99|0.9|1,1|-1,2|a,b|0.9,0.9,0.9"),
    "NAME=VALUE": _split(
        "n_layers=1|n_layers=0|width=15|width=-1|mask_rate=2|nothing=1|n_layers=two|kg_per_kwh=-1|dropout_rate=0.5|n_heads=3"
        "|x|masks=causal|unit=word"
    ),
    "NAME=VALUES": _split(
        "mask_rate=0.1,0.2|learning_rate=0.01|recipe=bert-tiny,gpt-tiny|nothing=1|mask_rate=|n_layers=1,2"
    ),
    "'NAME: SETTING=VALUE …'": _split(
        "a: learning_rate=0.1|a:|:|b: 'x|a: nothing=1|a: learning_rate=0.1 learning_rate=0.2"
    ),
    "COMMAND": _split(
        "evaluate good_bad.tsv|evaluate nowhere.tsv|evaluate|embed texts.txt|finetune classify|'"
        "|evaluate good_bad.tsv --pairs x"
    ),
    "COLUMN": _split("text|label|second|number|1|2|0|-1|99|upos|nothing"),
    "COLUMNS": _split("text,second|text|1,2|nothing|text,,label"),
    "NAMES": _split("text|label|id,label|all|nothing|full,int8|obj,det|label,label|char-cnn|models/static|rte"),
    "NAME": _split("text|label|second|nothing|id|1|linear|mlp|adamw|inside quotes|position in line"),
    "WORDS": _split("vase|vase,news|nothing at all|syntactic|surface"),
    "WORD": _split("vase|broke|nothing|The vase|"),
    "LABEL": _split("good|bad|yes|O|nothing"),
    "CHARACTER": _split(',|;|\t|ab||\n|"|é'),
    "DEVICE": _split("auto|cpu|cuda|cuda:7|cpu:1|meta|mps|tpu"),
    "UNIT": _split("word|piece|byte|text|line|texts|blocks|label|nothing|words|spans|arcs"),
}
"""Values by what the command line calls them, plausible ones and others; besides, those that an option's help lists."""
_NAMED = frozenset(_split("MODEL|MODELS|LAYER|OUTPUT|FILE|INPUT|FOLDER|RUN|COLUMN|TEXT|WORD")) | {"LAYER|MODEL"}
"""What help describes, and does not list."""


@dataclass(frozen=True)
class CommandLine:
    """A verb, and groups of words: an argument, or an option with its value."""

    verb: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> list[str]:
        return [*self.verb.split(), *(word for group in self.groups for word in group)]

    def __str__(self) -> str:
        return shlex.join(["polyseme", *self.words]).encode("unicode_escape").decode()

    def without(self, place: int) -> CommandLine:
        return CommandLine(self.verb, self.groups[:place] + self.groups[place + 1 :])


def random_line(seed: str, verb: str | None = None) -> CommandLine:
    """The command line of a seed; of one verb, or of any."""
    draw = random.Random(seed)
    return _drawn(draw, verb or draw.choice(list(LINES)))


def _drawn(draw: random.Random, verb: str) -> CommandLine:
    words = shlex.split(draw.choice(LINES[verb]))
    if verb == "sweep":
        verb = f"sweep {words.pop(0)}"
    options, arguments = _options(verb), _arguments(verb)
    groups = _grouped(words, options)
    if arguments and draw.random() < 0.15:
        place = draw.choice(
            [n for n, group in enumerate(groups) if len(group) == 1 and group[0] not in options] or [len(groups)]
        )
        groups[place : place + 1] = [(_value(draw, draw.choice(arguments)),)]
    main = [flag for flag in ("-m", "-o", "--in", "--layer", "--device", "--format") if flag in options]
    for _ in range(draw.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        flag = draw.choice(main if main and draw.random() < 0.2 else list(options)) if options else "--nothing"
        group = (flag,) if flag not in options or options[flag].is_flag else (flag, _value(draw, options[flag]))
        same = [n for n, each in enumerate(groups) if flag in options and options.get(each[0]) is options[flag]]
        if same and draw.random() < 0.9:
            groups[draw.choice(same)] = group
        else:
            groups.append(group)
    if groups and draw.random() < 0.05:
        place = draw.randrange(len(groups))
        if groups[place][0] not in KEPT:
            del groups[place]
    if draw.random() < 0.05:
        groups.append(
            draw.choice([("--nothing",), ("-z",), ("--outputt", "x"), ("extra",), ("-o",), ("--",), ("--help",)])
        )
    if draw.random() < 0.2:
        draw.shuffle(groups)
    return CommandLine(verb, tuple(groups))


def _grouped(words: Sequence[str], options: Mapping[str, click.Option]) -> list[tuple[str, ...]]:
    groups, left = [], list(words)
    while left:
        option = options.get(left[0])
        size = 1 if option is None or option.is_flag else 2
        groups.append(tuple(left[:size]))
        del left[:size]
    return groups


@cache
def _command(verb: str) -> click.Command:
    name, _, swept = verb.partition(" ")
    return swept_command(swept) if swept else later(f"polyseme.cli.{name}").command


@cache
def _options(verb: str) -> dict[str, click.Option]:
    found = [each for each in _command(verb).params if isinstance(each, click.Option)]
    return {flag: each for each in found for flag in (*each.opts, *each.secondary_opts)}


@cache
def _arguments(verb: str) -> list[click.Argument]:
    return [each for each in _command(verb).params if isinstance(each, click.Argument)]


def _value(draw: random.Random, parameter: click.Parameter) -> str:
    """A value for an option: often one that may be right, sometimes one at the edge, sometimes none at all."""
    if draw.random() < 0.1:
        return draw.choice(ABSURD)
    numbers = {"integer": _WHOLE, "float": _REAL}.get(parameter.type.name)
    if numbers is not None:
        plausible, borderline, wrong = numbers
        return draw.choice(draw.choices((plausible, borderline, wrong), (12, 5, 1))[0])
    listed = _listed(parameter)
    pool = _POOLS.get(str(parameter.metavar), _TEXTS)
    if parameter.metavar in ("AMOUNT", "TIME"):
        listed = []  # those of the help take minutes
    if parameter.name == "cache":
        pool = [each for each in pool if not each.startswith("models")]  # others share what is there
    if parameter.name == "recipe":
        pool, listed = [each for each in RECIPES if "tiny" in each or each == "kneser-ney"], ["nothing"]
    return draw.choice(listed if listed and draw.random() < (0.05 if parameter.metavar in _NAMED else 0.6) else pool)


def _listed(parameter: click.Parameter) -> list[str]:
    """What the help of an option lists after a colon, and its default: `Order: text, left, right` has three."""
    help = str(getattr(parameter, "help", None) or "").split("[default")[0]
    parts = re.split(r",|;|\.\s|\bor\b|\band\b", help.partition(":")[2])
    words = [part.split()[0].strip("().:") for part in parts if part.strip()]
    default: Any = getattr(parameter, "default", None)
    words = [word for word in words if word and not word.startswith("hub:")]  # there may be no network
    return [*words, *([str(default)] if isinstance(default, str | int | float) else [])]


if set(LINES) != set(VERBS):  # a new verb needs a line here
    raise AssertionError(f"{sorted(set(LINES) ^ set(VERBS))} are in one of LINES and VERBS only.")
