"""`polyseme generate`: prompts of the command line and of files, in order, gone on with after a kill."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import polyseme
from cli.commands import Refuse, Run
from cli.test_terminal import Terminal, plain
from forked import Forked, run_forked
from polyseme.errors import InputError, PolysemeWarning
from polyseme.generating import generate_files
from polyseme.generating.text_generator import TextGenerator
from polyseme.printable import visible
from tiny_models import tiny_model

PROMPT = "The vase broke"
CHUNK = 4
"""Prompts of a chunk, instead of the many it has by default."""
N_PROMPTS = 41
DYING = f"""
import os, signal
from polyseme.cli import main
from polyseme.generating import generate_files
from polyseme.generating.text_generator import TextGenerator

write = TextGenerator.__call__

left = int(os.environ["DIE_AFTER"])

def dying(*given, **named):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return write(*given, **named)

generate_files.CHUNK_PROMPTS = {CHUNK}
TextGenerator.__call__ = dying
main()
"""
"""The command line with small chunks, which kills itself after so many of them, however fast the machine is."""


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random GPT-2 with room for 40 pieces."""
    folder = tmp_path_factory.mktemp("gpt2") / "model"
    tiny_model("gpt2").save(folder)
    return folder


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prompts with ids and a field, in several chunks."""
    monkeypatch.setattr(generate_files, "CHUNK_PROMPTS", CHUNK)
    path = tmp_path / "prompts.jsonl"
    rows = ({"key": f"p{n}", "prompt": f"{'crane ' * (n % 6)}dawn {n}", "stars": n % 5} for n in range(N_PROMPTS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def line(source: Path, model: Path, output: Path, *more: str, seed: int = 3) -> list[str]:
    read = ["--field", "prompt", "--id-field", "key", "--fields", "stars"]
    drawn = ["--temperature", "1.1", "--top-p", "0.95", "--n", "2", "--max-new", "7", "--seed", str(seed)]
    return ["generate", "--in", str(source), *read, *drawn, "-m", str(model), "-o", str(output), *more]


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]


def unfinished(output: Path) -> Path:
    return output.with_name(f"{output.name}.unfinished")


# --- prompts of the command line -------------------------------------------------------------------------------------


def test_a_prompt_is_printed_with_what_follows(run: Run, gpt2: Path) -> None:
    ended = run("generate", PROMPT, "-m", gpt2, "--max-new", 6, "--device", "cpu")
    [expected] = polyseme.load(gpt2, device="cpu").generate([PROMPT], max_new=6)
    assert ended.code == 0
    assert ended.out == f"{PROMPT}{expected}\n"
    assert "1 text, " in ended.err


def test_on_a_terminal_text_is_shown_as_it_comes(gpt2: Path) -> None:
    """The prompt first, then pieces; nothing is shown twice, and no bar is drawn over them."""
    terminal = Terminal()
    code = "from polyseme.cli import main; main(prog_name='polyseme')"
    line = ["generate", PROMPT, "-m", str(gpt2), "--max-new", "6", "--device", "cpu"]
    with Forked(code, *line, stdout=terminal.side, stderr=PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 0
    shown = plain(terminal.shown())
    [expected] = polyseme.load(gpt2, device="cpu").generate([PROMPT], max_new=6)
    assert shown.replace("\r\n", "\n") == visible(f"{PROMPT}{expected}\n")
    assert said.startswith(b"1 text, ")


def test_several_prompts_and_texts(run: Run, gpt2: Path) -> None:
    options = ["-m", gpt2, "--n", 2, "--top-k", 20, "--max-new", 4]
    ended = run("generate", "The vase", "Dawn", *options)
    expected = polyseme.load(gpt2).generate(["The vase", "Dawn"], n=2, top_k=20, max_new=4)
    whole = [prompt + text for prompt, texts in zip(["The vase", "Dawn"], expected, strict=True) for text in texts]
    assert ended.out == "\n\n".join(whole) + "\n"
    printed = json.loads(run("generate", "The vase", "Dawn", *options, "--json").out)
    assert [each["prompt"] + each["text"] for each in printed] == whole
    assert [(each["id"], each["number"]) for each in printed] == [("1", 1), ("1", 2), ("2", 1), ("2", 2)]
    assert all(each["log_probability"] < 0 for each in printed)


def test_beams_and_stop_strings_reach_the_model(run: Run, gpt2: Path) -> None:
    model = polyseme.load(gpt2)
    beam = {"beam": 3, "n": 2, "length_penalty": 0.6, "early_stopping": "never", "max_new": 6, "stop": ["ra", "bal"]}
    flags = ["--beam", 3, "--n", 2, "--length-penalty", 0.6, "--early-stopping", "never", "--max-new", 6]
    found = json.loads(run("generate", PROMPT, "-m", gpt2, *flags, "--stop", "ra", "--stop", "bal", "--json").out)
    assert [each["text"] for each in found] == model.generate([PROMPT], **beam)[0]  # type: ignore[arg-type]


def test_prompts_to_a_file(run: Run, gpt2: Path, tmp_path: Path) -> None:
    ended = run("generate", "The vase", "Dawn", "-m", gpt2, "-o", tmp_path / "out.jsonl", "--max-new", 4)
    assert ended.out == ""
    assert [each["prompt"] for each in records(tmp_path / "out.jsonl")] == ["The vase", "Dawn"]


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_order_of_a_file_is_kept(run: Run, gpt2: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert run(*line(source, gpt2, output)).code == 0
    found = records(output)
    assert [(each["id"], each["number"]) for each in found] == [
        (f"p{n}", number) for n in range(N_PROMPTS) for number in (1, 2)
    ]
    given = records(source)
    assert [each["prompt"] for each in found[::2]] == [each["prompt"] for each in given]
    assert [each["fields"] for each in found[::2]] == [{"stars": n % 5} for n in range(N_PROMPTS)]
    assert not unfinished(output).exists()
    together = polyseme.load(gpt2, device="cpu").generate(
        [each["prompt"] for each in given], temperature=1.1, top_p=0.95, n=2, max_new=7, seed=3
    )
    assert [each["text"] for each in found] == [text for texts in together for text in texts]


def test_a_plain_line_a_text(run: Run, gpt2: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.hyp"
    source.write_text("The vase\nDawn\n", encoding="utf-8")
    assert run("generate", "--in", source, "-m", gpt2, "-o", output, "--max-new", 5).code == 0
    expected = polyseme.load(gpt2).generate(["The vase", "Dawn"], max_new=5)
    lines = [" ".join(str(text).splitlines()) for text in expected]
    assert output.read_text(encoding="utf-8").split("\n") == [*lines, ""]


def test_line_breaks_in_a_plain_line_are_said() -> None:
    with pytest.warns(PolysemeWarning, match="line breaks, which are written as blanks"):
        assert generate_files._one_line("one\ntwo") == "one two"


def test_standard_input(run: Run, gpt2: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    ended = run("generate", "--in", "-", "-m", gpt2, "-o", output, "--max-new", 3, stdin=b"Dawn\nThe vase\n")
    assert ended.code == 0
    assert [each["prompt"] for each in records(output)] == ["Dawn", "The vase"]


# --- stopped ---------------------------------------------------------------------------------------------------------


def test_killed_and_gone_on_with(run: Run, gpt2: Path, source: Path, tmp_path: Path) -> None:
    """At several moments; what comes out in the end is what an undisturbed run writes, bit for bit."""
    whole, output = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run(*line(source, gpt2, whole))
    kept = 0
    for chunks in (2, 4):
        done = run_forked(DYING, *line(source, gpt2, output), env={**os.environ, "DIE_AFTER": str(chunks)})
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not output.exists()
        before, kept = kept, len(list(unfinished(output).glob("[0-9]*.json")))
        assert kept > before
    ended = run(*line(source, gpt2, output))
    assert ended.code == 0
    assert f"Resumed: an earlier run had done {kept * CHUNK} prompts." in ended.err
    assert output.read_bytes() == whole.read_bytes()
    assert not unfinished(output).exists()


class Enough(Exception):  # noqa: N818
    pass


def stopped(run: Run, given: list[str], n_chunks: int) -> None:
    """Let the model break down after so many chunks."""
    write, done = TextGenerator.__call__, []

    def counted(self: TextGenerator, *arguments: Any, **named: Any) -> Any:
        if len(done) == n_chunks:
            raise Enough
        done.append(1)
        return write(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TextGenerator, "__call__", counted)
        with pytest.raises(Enough):
            run(*given)


def test_other_settings_do_not_go_on(run: Run, refuse: Refuse, gpt2: Path, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    stopped(run, line(source, gpt2, output), 3)
    said = refuse(*line(source, gpt2, output, seed=4), folder=tmp_path)
    assert "the unfinished output of other settings: seed was 3 and is 4" in said
    assert run(*line(source, gpt2, output, "--force", seed=4)).code == 0
    assert not unfinished(output).exists()


def test_a_chunk_whose_input_has_changed_is_made_again(run: Run, gpt2: Path, source: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    stopped(run, line(source, gpt2, output), 3)
    text = source.read_text(encoding="utf-8").replace("dawn 5", "dusk 5")
    source.write_text(text, encoding="utf-8")
    (unfinished(output) / "000002.json").write_text("{", encoding="utf-8")
    ended = run(*line(source, gpt2, output))
    assert "computed again: the input has changed there" in ended.err
    assert "computed again: it is damaged" in ended.err
    run(*line(source, gpt2, whole))
    assert output.read_bytes() == whole.read_bytes()


# --- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "There is no prompt"),
        (["x", "--in", "prompts.txt"], "Give one or the other"),
        (["--in", "prompts.txt"], "Give an output (-o)"),
        (["x", "--field", "prompt"], "'field' is about a source of prompts"),
        (["x", "--temperature", "0", "--top-p", "0.9"], "no use for 'top_p'"),
        (["x", "--beam", "4", "--top-k", "3"], "no use for 'top_k'"),
        (["x", "--beam", "2", "--n", "3"], "has no 3 best texts"),
        (["x", "--beam", "2", "--early-stopping", "maybe"], "Got 'maybe' instead"),
        (["x", "--min-new", "30"], "at least 30 and at most 20"),
        (["x", "-o", "out.parquet"], "texts are not written as .parquet"),
        (
            ["x", "-o", "out.txt", "--n", "2", "--top-k", "3"],
            "plain lines cannot show which prompt each of 2 texts",
        ),
        (["x", "-o", "prompts.txt/out.jsonl"], "prompts.txt is not a folder"),
    ],
    ids=str,
)
def test_what_is_refused_before_a_model_is_loaded(
    given: list[str], said: str, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("x\n", encoding="utf-8")
    assert said in refuse("generate", *given, "-m", "nowhere", folder=tmp_path)


def test_the_output_is_not_the_input(refuse: Refuse, gpt2: Path, source: Path, tmp_path: Path) -> None:
    said = refuse("generate", "--in", source, "-m", gpt2, "-o", source, "--force", folder=tmp_path)
    assert "is the input itself" in said


def test_a_prompt_that_is_too_long_is_named_by_its_place(refuse: Refuse, run: Run, gpt2: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text(f"The vase\n{'crane ' * 50}\n", encoding="utf-8")
    said = refuse("generate", "--in", source, "-m", gpt2, "-o", output, folder=tmp_path)
    assert f"The prompt in {source}, line 2 has " in said
    assert "give a stride" in said
    assert run("generate", "--in", source, "-m", gpt2, "-o", output, "--stride", 12).code == 0


def test_a_file_without_prompts(refuse: Refuse, gpt2: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("", encoding="utf-8")
    refuse("generate", "--in", source, "-m", gpt2, "-o", tmp_path / "out.jsonl", folder=tmp_path)


def test_a_model_without_a_fitting_output(refuse: Refuse, tmp_path: Path) -> None:
    model = tiny_model("electra")
    del model.bundle.outputs["masked"]
    model.save(tmp_path / "electra")
    assert "The model cannot generate" in refuse("generate", "x", "-m", tmp_path / "electra", folder=tmp_path)


def test_a_masked_model_says_what_it_does(run: Run, tiny: Path) -> None:
    ended = run("generate", PROMPT, "-m", tiny, "--max-new", 3)
    assert ended.code == 0
    assert ended.out.startswith(PROMPT)
    assert "note: The model has learned to fill masks" in ended.err


def test_in_python_a_place_is_named_too(gpt2: Path) -> None:
    with pytest.raises(InputError, match="Prompt 1 has"):
        polyseme.generate(["x", "crane " * 50], model=gpt2)
