"""What `show`, `pieces`, `fill`, `next` and `convert` print and write."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import polyseme
from cli.commands import Refuse, Run


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_show_says_what_a_model_is(run: Run, tiny: Path) -> None:
    ended = run("show", "-m", tiny)
    assert (ended.code, ended.err) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in ended.out.splitlines())
    card = polyseme.show(model=tiny)
    assert shown["family"] == "bert"
    assert shown["layers"] == "3 above layer 0, 32 wide"
    assert shown["parameters"] == f"{card.parameters:,}"
    words = "embed, similar, senses, concordance, compare, pieces, convert, finetune, benchmark"
    assert shown["can"] == f"{words}, probe, geometry, uses, fill, next, score, evaluate, lens, patch, attention, heads"


def test_show_cuts_nothing_however_narrow_the_terminal(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = tmp_path / ("far-" * 40) / "away"
    long.parent.mkdir()
    long.symlink_to(tiny)
    ended = run("show", "-m", long)
    assert ended.out.splitlines()[0].endswith(f"  {long}")
    assert "\x1b" not in ended.out
    assert not any(line.endswith(" ") for line in ended.out.splitlines())


def test_show_as_json_is_the_whole_card(run: Run, tiny: Path) -> None:
    card = dataclasses.asdict(polyseme.show(model=tiny))
    assert json.loads(run("show", "-m", tiny, "--json").out) == json.loads(json.dumps(card))


def test_show_draws_who_sees_whom_and_the_positions(run: Run, tiny: Path, tmp_path: Path) -> None:
    ended = run("show", "-m", tiny, "-o", tmp_path / "tiny.svg", "--length", "6")
    assert (ended.code, ended.err) == (0, "")
    picture = ElementTree.parse(tmp_path / "tiny.svg")
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"layer 0", "layers 1 to 3", "[CLS]", "Positions: learned", "Cosines of the positions"} <= set(texts)
    run("show", "-m", tiny, "-o", tmp_path / "tiny.html")
    page = (tmp_path / "tiny.html").read_text(encoding="utf-8")
    assert "Who sees whom" in page
    assert f"{polyseme.show(model=tiny).parameters:,}" in page


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("-o", "show.png"), r"must end in .html, .svg. Got 'show.png' instead"),
        (("--length", "6"), r"The length is that of the pictures. Name an output file"),
        (("-o", "show.svg", "--length", "1"), r"from 2 to 256 pieces. Got 1 instead"),
        (("-o", "show.svg", "--length", "250"), r"The model reads \d+ pieces at once. Got a length of 250 instead"),
    ],
)
def test_pictures_that_cannot_be(
    refuse: Refuse, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refuse("show", "-m", tiny, *request_, folder=tmp_path))


def test_models_without_an_encoder_have_no_picture(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "texts.txt").write_text("The vase broke .\n" * 20)
    counts = tmp_path / "counts"
    shape = {"order": 2, "smoothing": "interpolated", "discount": 0.75}
    polyseme.pretrain(
        tmp_path / "texts", recipe="kneser-ney", shape=shape, tokenizer="blanks", held_out=0, output=counts
    )
    said = refuse("show", "-m", counts, "-o", tmp_path / "show.svg", folder=tmp_path)
    assert "is an n-gram model" in said
    assert "has no encoder" in said


def test_pieces_in_a_table(run: Run, tiny: Path) -> None:
    found = polyseme.pieces("Dawn  broke!", model=tiny)
    ended = run("pieces", "Dawn  broke!", "-m", tiny)
    assert (ended.code, ended.err) == (0, "")
    header, first, *middle, last = cells(ended.out)
    assert header == ["piece", "id", "text"]
    assert [first[0], last[0]] == ["[CLS]", "[SEP]"]
    assert len(first) == len(last) == 2, "specials stand nowhere"
    assert [(piece, int(id)) for piece, id, _ in middle] == list(
        zip(found.pieces[1:-1], found.ids[1:-1].tolist(), strict=True)
    )
    assert [span for _, _, span in middle] == [f"{start}–{end}" for start, end in found.spans[1:-1].tolist()]


def test_columns_stand_under_each_other_whatever_the_script(run: Run, tiny: Path) -> None:
    from rich.cells import cell_len

    lines = run("pieces", "broke [MASK] 中文 broke", "-m", tiny).out.splitlines()
    starts = set()
    for line in lines:
        piece = line.split()[0]
        starts.add(cell_len(line[: line.index(line.split()[1], len(piece))]))
    assert len(starts) == 1


def test_pieces_as_json(run: Run, tiny: Path) -> None:
    found = polyseme.pieces("Dawn broke.", model=tiny)
    assert json.loads(run("pieces", "Dawn broke.", "-m", tiny, "--json").out) == {
        "pieces": found.pieces,
        "ids": found.ids.tolist(),
        "spans": found.spans.tolist(),
    }


@pytest.mark.parametrize("attentions", [False, True])
def test_pieces_with_their_states(run: Run, tiny: Path, tmp_path: Path, attentions: bool) -> None:
    output = tmp_path / "out.npz"
    flags = ["--attentions"] if attentions else []
    assert run("pieces", "Dawn broke.", "-m", tiny, "-o", output, *flags).code == 0
    found = polyseme.load(tiny).pieces("Dawn broke.", attentions=True)
    assert found.attentions is not None
    with np.load(output) as arrays:
        assert arrays["pieces"].tolist() == found.pieces
        assert np.array_equal(arrays["ids"], found.ids)
        assert np.allclose(arrays["states"], found.states, atol=1e-5)
        assert ("attentions" in arrays) == attentions
        if attentions:
            assert np.allclose(arrays["attentions"], found.attentions, atol=1e-5)


def test_fill_ranks_pieces_for_each_mask(run: Run, tiny: Path) -> None:
    text = "A [MASK] of [MASK]."
    expected = polyseme.fill(text, model=tiny, top=2)
    ended = run("fill", text, "-m", tiny, "--top", 2)
    assert (ended.code, ended.err) == (0, "")
    header, *rows = cells(ended.out)
    assert header == ["mask", "piece", "probability"]
    assert rows == [
        [str(number), piece, f"{probability:.4f}"]
        for number, each in enumerate(expected, start=1)
        for piece, probability in zip(each.pieces, each.probabilities, strict=True)
    ]
    assert [mask for mask, _, _ in rows] == ["1", "1", "2", "2"]
    assert json.loads(run("fill", text, "-m", tiny, "--top", 2, "--json").out) == [
        dataclasses.asdict(each) for each in expected
    ]


def test_next_is_a_probability(run: Run, tiny: Path) -> None:
    ended = run("next", "The vase fell.", "It broke.", "-m", tiny)
    expected = polyseme.next("The vase fell.", "It broke.", model=tiny)
    assert ended == (0, f"{expected:.4f}\n", "")
    assert run("next", "It broke.", "The vase fell.", "-m", tiny).out != ended.out


def test_convert_saves_the_same_model(run: Run, tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "new"
    ended = run("convert", "-m", tiny, "-o", output, "--shard-size", 40_000)
    assert (ended.code, ended.out, ended.err) == (0, "", f"{output}: saved\n")
    assert len(list(output.glob("*.safetensors"))) > 1
    old, new = (polyseme.load(folder).embed(["The vase broke."])[0].vectors for folder in (tiny, output))
    assert np.array_equal(old, new)
    assert run("convert", "-m", tiny, "-o", output, "--force").code == 0
    assert [path.name for path in output.glob("*.safetensors")] == ["model.safetensors"]


def test_targets_without_a_name_are_refused(refuse: Refuse, tiny: Path, tmp_path: Path) -> None:
    for targets in ("", " , "):
        message = refuse("fill", "A [MASK] broke.", "-m", tiny, "--targets", targets, folder=tmp_path)
        assert message.startswith("--targets wants one or more names")


def test_fill_compares_whole_words_and_targets(run: Run, tiny: Path) -> None:
    text = "A [MASK] picked up the steel [MASK]."
    expected = polyseme.fill(text, model=tiny, whole_words=True, top=3)
    lines = run("fill", text, "-m", tiny, "--whole-words", "--top", 3).out.splitlines()
    assert lines[0].split("  ")[0] == "word 1"
    assert [line.split()[0] for line in lines[1:]] == expected[0].words
    assert json.loads(run("fill", text, "-m", tiny, "--whole-words", "--top", 3, "--json").out) == [
        vars(each) for each in expected
    ]
    one = run("fill", "A [MASK] broke.", "-m", tiny, "--targets", "crane, misunderstandings,law").out.splitlines()
    assert sorted(line.split()[0] for line in one[1:]) == ["crane", "law", "misunderstandings"]
    assert one[0].split() == ["word", "pieces", "probability", "share"]


def test_convert_says_how_texts_are_pooled(run: Run, tiny: Path, tmp_path: Path) -> None:
    output = tmp_path / "st"
    ended = run("convert", "-m", tiny, "--to", "sentence-transformers", "--text-pool", "first", "-o", output)
    note = f"note: a text's vector is the vector of the first piece, here and with embed -m {output} --per text.\n"
    assert (ended.code, ended.err) == (0, f"{note}{output}: saved\n")
