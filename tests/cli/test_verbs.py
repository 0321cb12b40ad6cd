"""Every verb is one public function with the same names and defaults, and says what it does."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shlex
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

import polyseme
from polyseme import cli
from polyseme.cli import VERBS, main
from polyseme.verb_options.model_options import ConvertOptions

FUNCTIONS = {verb: verb for verb in VERBS} | {
    "claims": "check_claims",
    "convert": "convert_model",
    "corpus": "build_corpus",
    "heads": "attention_heads",
    "models": "list_models",
    "recipes": "list_recipes",
}
"""Verb → the public function it calls; some verbs are the names of rooms."""
ONLY_IN_PYTHON = {"progress", "on_report", "on_start", "on_text", "started"}
"""Told how far the work has come: the command line draws it; and when the work began, which the command knows."""
ONLY_IN_COMMANDS = {"as_json"}
"""Prints what the function returns in another way."""
SOME_VALUE = {
    "model": "folder",
    "output": "out",
    "systems": ("ELMo", "GPT"),
    "layer": "0",
    "pool": "first",
    "device": "cpu",
    "dtype": "bf16",
    "batch_pieces": 7,
    "ray": "local",
    "force": True,
    "top": 3,
    "whole_words": True,
    "among": "answers",
    "also": ("models/pruned", "models/small"),
    "forms": ("full", "int8"),
    "items": 3,
    "rounds": 2,
    "word_probability": "corrected",
    "marked": True,
    "targets": ("France", "Italy"),
    "attentions": True,
    "shard_size": 9,
    "source": "texts.txt",
    "target": "translations.txt",
    "held_source": "more.txt",
    "held_target": "their translations.txt",
    "index": "uses",
    "against": "1",
    "same_word": True,
    "center": False,
    "context": 2,
    "apply": "before.json",
    "names": "none",
    "wordnet": "dict",
    "field": "text",
    "n_senses": 4,
    "map": "tsne",
    "max_uses": 70,
    "min_uses": 30,
    "max_words": 90,
    "max_types": 40,
    "remove_components": 3,
    "sentence": ("Dawn broke.",),
    "static": "glove.txt",
    "near": 4,
    "shown": 5,
    "group_by": "author",
    "match": "lemma",
    "match_case": True,
    "width": 25,
    "sort": "left",
    "like": "Dawn [broke].",
    "seed": 5,
    "per": "text",
    "text_pool": "max",
    "to": "word2vec",
    "min_count": 3,
    "id_field": "key",
    "fields": ("one", "two"),
    "format": "csv",
    "words": "surface",
    "split": "paragraph",
    "quotes": "none",
    "delimiter": ";",
    "check_text": False,
    "on_error": "skip",
    "long": True,
    "columns": ("id", "word", "vector"),
    "store": "fp16",
    "shard_rows": 8,
    "shard_format": "npz",
    "by": "byte",
    "pairs": 7,
    "curve": True,
    "hide": "piece",
    "order": "right-to-left",
    "stack": "decoder",
    "source_field": "english",
    "reference": ("translations.txt",),
    "stride": 6,
    "neural_cache": True,
    "cache_size": 500,
    "cache_share": 0.25,
    "cache_sharpness": 1.5,
    "carry_state": True,
    "pool_uses": "min",
    "data": "tasks",
    "resume": "run",
    "stop_after": "9min",
    "show": True,
    "small": True,
    "jobs": 3,
    "as_published": True,
    "recipe": "bert-mini",
    "budget": "3steps",
    "tokenizer": "unigram",
    "vocab_size": 400,
    "documents": "line",
    "held_out": 0.2,
    "batch_size": 12,
    "length": 32,
    "learning_rate": 0.5,
    "optimizer": "sgd",
    "schedule": "noam",
    "warmup": 0.3,
    "micro_batch_size": 2,
    "mask_documents": True,
    "reset_positions": True,
    "shape": {"n_layers": 4},
    "objective": {"unit": "word"},
    "layout": "doc-sentences",
    "compile": True,
    "parallel": "fsdp",
    "log_every": 2,
    "evaluate_every": 5,
    "checkpoint_every": 11,
    "keep_checkpoints": 6,
    "ema": 0.99,
    "average_checkpoints": 4,
    "keep_at_words": ("1M", "10M"),
    "tensorboard": True,
    "workers": 13,
    "dry_run": True,
    "frame": "roberta",
    "lowercase": True,
    "sample": 1000,
    "limit": 2000,
    "reuse": True,
    "reread_inputs": True,
    "at": "output",
    "between": True,
    "head_layers": 3,
    "cost_rates": {"kg_per_kwh": 0.05},
    "max_new": 21,
    "min_new": 2,
    "temperature": 0.7,
    "top_k": 15,
    "greedy": True,
    "top_p": 0.9,
    "beam": 17,
    "length_penalty": 0.6,
    "early_stopping": "never",
    "n": 18,
    "repetition_penalty": 1.2,
    "no_repeat_ngram": 19,
    "stop": ("halt",),
    "train": "train.csv",
    "dev": "dev.csv",
    "test": "test.csv",
    "text": "review",
    "second": "hypothesis",
    "label": "stars",
    "choices": ("a", "b"),
    "start": "begin",
    "marks": "predicate",
    "first_span": "mention",
    "second_span": "pronoun",
    "regression": True,
    "separator": "|",
    "scheme": "BIOES",
    "repair": True,
    "unseen": "keep",
    "frozen": True,
    "readout": "max",
    "head": "mlp",
    "inner_width": 23,
    "inputs": "char-cnn",
    "epochs": 24,
    "head_learning_rate": 0.75,
    "layer_decay": 0.9,
    "betas": (0.5, 0.75),
    "ulmfit": True,
    "chunk_length": 31,
    "read_last": 32,
    "gradual_unfreezing": True,
    "reinit_layers": 26,
    "weight_decay": 0.125,
    "max_grad_norm": 2.5,
    "dropout": 0.35,
    "seeds": 27,
    "max_pieces": 28,
    "max_text_bytes": 1000,
    "evaluations": 29,
    "cache": "vectors",
    "checkpoint_seconds": 30.5,
    "tasks": ("rte", "mrpc"),
    "train_items": 50,
    "dev_items": 40,
    "train_share": "1%,10%",
    "layers": 3,
    "student": "small",
    "gold_weight": 0.25,
    "match_weight": 0.1,
    "scratch": True,
    "fill_pruned": True,
    "heads": "40%",
    "method": "gates",
    "at_least": 0,
    "reestimate": True,
    "points": 4,
    "each_head": True,
    "max_items": 12,
    "gate_steps": 13,
    "relations": ("obj", "det"),
    "prefix": "the news",
    "structural": "depth",
    "rank": 7,
    "importance": "held-out.txt",
    "pieces": True,
    "rollout": True,
    "word": "broke",
    "occurrence": 2,
    "baseline": "mask",
    "steps": 15,
    "unit": "arcs",
    "probe": "mlp",
    "hidden": 32,
    "l2": 2.5,
    "control": True,
    "code_length": True,
    "random": True,
    "answer": "are",
    "property": "inside quotes",
    "cell": (1, 2),
    "half": "backwards",
    "value": "output",
}
"""For every option of a function, something that is not its default."""

every_verb = pytest.mark.parametrize("verb", VERBS)
OF_OTHERS = ("sweep",)
"""Verbs that take the options of others beside their own: `tests/cli/test_sweep.py`."""
every_plain_verb = pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in OF_OTHERS])


class Called(Exception):  # noqa: N818
    """Raised in the place of the function, with what it was called with."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.given = given


def command_of(verb: str) -> click.Command:
    command: click.Command = importlib.import_module(f"polyseme.cli.{verb}").command
    return command


def options_of(verb: str) -> dict[str, click.Option]:
    return {str(each.name): each for each in command_of(verb).params if isinstance(each, click.Option)}


def arguments_of(verb: str) -> list[str]:
    return [str(each.name) for each in command_of(verb).params if isinstance(each, click.Argument)]


def parameters_of(verb: str) -> dict[str, inspect.Parameter]:
    function: Callable[..., Any] = getattr(polyseme, FUNCTIONS[verb])
    found = inspect.signature(function).parameters
    return {name: parameter for name, parameter in found.items() if name not in ONLY_IN_PYTHON}


def call(monkeypatch: pytest.MonkeyPatch, verb: str, *given: str) -> dict[str, Any]:
    """What a verb calls its function with, if each argument is its own name."""
    signature = inspect.signature(getattr(polyseme, FUNCTIONS[verb]))

    def function(*arguments: Any, **options: Any) -> None:
        raise Called(signature.bind(*arguments, **options).arguments)

    monkeypatch.setattr(polyseme, FUNCTIONS[verb], function)
    result = CliRunner().invoke(main, [verb, *arguments_of(verb), *given])
    assert isinstance(result.exception, Called), result.output
    return {name: value for name, value in result.exception.given.items() if name not in ONLY_IN_PYTHON}


def help_of(*verb: str) -> str:
    result = CliRunner().invoke(main, [*verb, "--help"])
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout


def test_the_list_of_verbs_is_the_files_that_hold_one() -> None:
    modules = [importlib.import_module(f"polyseme.cli.{each.name}") for each in pkgutil.iter_modules(cli.__path__)]
    assert {module.__name__.rpartition(".")[2] for module in modules if hasattr(module, "command")} == set(VERBS)


@every_plain_verb
def test_a_verb_has_the_parameters_of_its_function(verb: str) -> None:
    assert set(options_of(verb)) - ONLY_IN_COMMANDS | set(arguments_of(verb)) == set(parameters_of(verb))
    positional = [
        name for name, each in parameters_of(verb).items() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert arguments_of(verb) == positional


@every_plain_verb
def test_a_verb_has_the_defaults_of_its_function(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {name for name, each in parameters_of(verb).items() if each.default is each.empty}
    named = needed | set(arguments_of(verb))
    expected = {name: name if name in named else each.default for name, each in parameters_of(verb).items()}
    options = {name: option.opts[-1] for name, option in options_of(verb).items() if name in needed}
    given = call(monkeypatch, verb, *(part for name, flag in options.items() for part in (flag, name)))
    assert {name: _plain(name, value) for name, value in given.items()} == {
        name: _plain(name, value) for name, value in expected.items()
    }


def test_what_is_not_given_is_not_taken_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer is a number or a name, so that the command line has its default as a string."""
    given = call(monkeypatch, "convert", "-o", "out")
    assert isinstance(given["layer"], str)
    assert ConvertOptions(**given).changed().keys() - {"progress"} == {"output"}


def _plain(name: str, value: Any) -> Any:
    """A layer is a number or a word, and a command line has only words; one source or prompt may stand for a list."""
    if name in ("sources", "prompts", "texts") and isinstance(value, str):
        return (value,)
    return str(value) if name == "layer" else value


def _typed(value: Any) -> str:
    """A value as it is written on a command line."""
    if isinstance(value, dict):
        [(name, each)] = value.items()
        return f"{name}={each}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@every_plain_verb
def test_every_option_reaches_the_function(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {name: option for name, option in options_of(verb).items() if name not in ONLY_IN_COMMANDS}
    defaults = {name: _plain(name, parameters_of(verb)[name].default) for name in options}
    line: list[str] = []
    for name, option in options.items():
        flags = option.secondary_opts if option.is_flag and SOME_VALUE[name] is False else option.opts
        line += [flags[-1]] if option.is_flag else [flags[-1], _typed(SOME_VALUE[name])]
    given = call(monkeypatch, verb, *line)
    for name, default in defaults.items():
        assert given[name] == SOME_VALUE[name]
        assert given[name] != default, "the default, of which one cannot tell whether it was passed on"


@every_plain_verb
def test_the_model_is_always_m_and_the_output_always_o(verb: str) -> None:
    letters = {flag: name for name, option in options_of(verb).items() for flag in option.opts if flag[1] != "-"}
    expected = {"-m": "model", "-o": "output"}
    assert letters == {flag: name for flag, name in expected.items() if name in parameters_of(verb)}


@every_verb
def test_the_help_of_a_verb_has_examples_that_it_can_parse(verb: str) -> None:
    lines = [line.strip() for line in help_of(verb).partition("Examples:\n")[2].partition("\n\n")[0].splitlines()]
    assert lines
    for line in lines:
        words = shlex.split(line)
        words = words[words.index("polyseme") + 1 :]
        assert words[0] == verb
        command_of(verb).make_context(verb, words[1:])


@every_verb
def test_the_help_of_a_verb_says_something_of_everything_it_takes(verb: str) -> None:
    text = help_of(verb)
    about = text.partition("Examples:")[0].partition("\n\n")[2]
    for argument in (each for each in command_of(verb).params if isinstance(each, click.Argument)):
        assert argument.make_metavar(click.Context(command_of(verb))) in about
    for option in options_of(verb).values():
        assert option.opts[-1] in text
        assert option.help
        assert _unwrapped(option.help) in _unwrapped(text)


def test_the_help_of_a_verb_lists_its_options_by_section() -> None:
    _, options = help_of("probe").split("\nOptions:\n")
    order = (
        "-m, --model", "  --layers", "\nData:\n", "  --train", "\nControls:\n", "  --random",
        "\nVectors:\n", "  --stack", "\nComputation:\n", "  --device",
    )  # fmt: skip
    places = [options.index(each) for each in order]
    assert places == sorted(places)
    assert "\nReading the input:\n" in help_of("geometry")


def _unwrapped(text: str) -> str:
    """In one line, whether or not words were broken after a hyphen."""
    return " ".join(text.split()).replace("- ", "-")


def test_the_help_lists_the_verbs_with_what_they_do() -> None:
    text = help_of()
    assert "Examples:" in text
    for verb, what in VERBS.items():
        assert any(line.split(maxsplit=1) == [verb, what] for line in text.splitlines())


def test_without_a_verb_there_is_help() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0
    assert result.stdout == help_of()


def test_the_version_is_the_packages() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"polyseme, version {polyseme.__version__}\n"


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        (["embd", "a.txt"], "'embed'"),
        (["peices", "x"], "'pieces'"),
        (["embed", "a.txt", "-o", "v.npz", "--layr", "0"], "'--layer'"),
        (["fill", "x", "--tp", "3"], "'--top'"),
    ],
)
def test_what_is_unknown_is_refused_with_the_nearest(line: list[str], nearest: str) -> None:
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 2
    assert f"Did you mean {nearest}?" in result.stderr
    assert result.stderr.startswith("polyseme: ")
    assert result.stderr.count("\n") == 1
    assert "--help\n" in result.stderr
