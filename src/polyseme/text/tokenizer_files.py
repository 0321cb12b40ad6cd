"""Tokenizers from the files in a model's folder: the known file layouts and their readers, in order of preference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from polyseme.errors import ModelError
from polyseme.json_reading import load_json, refuse_large
from polyseme.text import sentencepiece
from polyseme.text.cut_points import steps
from polyseme.text.framing import FRAMES, Frame, get_frame
from polyseme.text.library_faults import library_faults, refuse_damaged_tables
from polyseme.text.pattern_checks import refuse_patterns
from polyseme.text.sentencepiece import Kind, Piece
from polyseme.text.sentencepiece_encoding import SentencePieceEncoder
from polyseme.text.sentencepiece_settings import encoder_from
from polyseme.text.specials import find_specials, frame_in, frame_of_folder, mark_specials, refuse_other_pieces
from polyseme.text.tokenizer import PieceTokenizer


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """The settings of a tokenizer besides its vocabulary."""

    settings: Mapping[str, Any]
    """The contents of tokenizer_config.json and special_tokens_map.json."""
    lowercase: bool | None
    """Whether the caller asks for lower-casing; None: no preference."""
    frame: str | None
    """The name of the frame that the caller asks for, if any."""

    def lowers(self, default: bool) -> bool:
        """Whether to lower-case: by the caller's choice, else the settings, else the default."""
        if self.lowercase is not None:
            return self.lowercase
        return bool(self.settings.get("do_lower_case", default))


class EncodingBackend(NamedTuple):
    """A tokenizer of the library, with the encoder that replaces it if it is a SentencePiece model."""

    backend: Tokenizer
    sentencepiece: SentencePieceEncoder | None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The files of a layout, the function that reads them, and the usual frame of such a tokenizer."""

    files: tuple[str, ...]
    read: Callable[[Sequence[Path], TokenizerOptions], Tokenizer | EncodingBackend]
    usual_frame: Callable[[Tokenizer, TokenizerOptions], Frame]
    masks_take_blanks: bool = True
    """Whether blanks before a mask belong to it, as in tokenizers with blanks in their pieces."""


def read_json(path: Path) -> Any:
    """The content of a JSON file of a model."""
    try:
        return load_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is not JSON, or it is damaged ({error}). Get the file again.") from None


MOST_SENTINELS = 100_000
UNUSUAL = "\u16a0\u16b1 \U00012000 a"
"""Runes and a cuneiform sign, which hardly any vocabulary has."""


# --- one file with everything ----------------------------------------------------------------------------------------


def _read_tokenizer_json(paths: Sequence[Path], options: TokenizerOptions) -> EncodingBackend:
    [path] = paths
    refuse_large(path)
    refuse_damaged_tables(path)
    with library_faults(f"{path} is not a tokenizer that this version can read"):
        backend = Tokenizer.from_file(str(path))
        described = [*steps(backend.normalizer), *steps(backend.pre_tokenizer)]
    refuse_patterns(described, path)
    with library_faults(
        f"{path} does not make pieces of every text",
        "Perhaps its vocabulary lacks the unknown piece; get the file again.",
    ):
        backend.encode(UNUSUAL)
    if str(options.settings.get("tokenizer_class", "")) not in GENERIC_CLASSES:
        _follow_settings(backend, options.settings)
    if options.lowercase is not None:
        _set_lowercase(backend, options.lowercase, path)
    return EncodingBackend(backend, encoder_from(backend, options.settings, path))


GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of `transformers` for which tokenizer.json alone counts."""
_OF_BERT = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"} | {
    "tokenize_chinese_chars": "handle_chinese_chars"
}
"""Settings of tokenizer_config.json, and their names in a tokenizer.json of BERT's kind."""


def _follow_settings(backend: Tokenizer, settings: Mapping[str, Any]) -> None:
    """Where tokenizer_config.json contradicts tokenizer.json, it counts, as in `transformers`; else it is refused."""
    chosen = {name: settings[name] for name in (*_OF_BERT, "add_prefix_space") if isinstance(settings.get(name), bool)}
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        for name, attribute in _OF_BERT.items():
            if name in chosen:
                setattr(normalizer, attribute, chosen[name])
        backend.normalizer = normalizer
    elif any(step["type"] in ("Lowercase", "StripAccents") for step in steps(normalizer)):
        lowers, strips = normalizer.normalize_str("A") == "a", normalizer.normalize_str("\u00e9") == "e"
        _refuse_other("do_lower_case", chosen, lowers, "lower-cases text" if lowers else "keeps capitals")
        _refuse_other("strip_accents", chosen, strips, "removes accents" if strips else "keeps accents")
    if isinstance(pre_tokenizer, pre_tokenizers.ByteLevel) and "add_prefix_space" in chosen:
        pre_tokenizer.add_prefix_space = chosen["add_prefix_space"]
        backend.pre_tokenizer = pre_tokenizer


def _refuse_other(setting: str, chosen: Mapping[str, bool], applied: bool, effect: str) -> None:
    if chosen.get(setting, applied) != applied:
        raise ModelError(
            f"tokenizer_config.json sets {setting!r} to {str(not applied).lower()}, and tokenizer.json {effect}. "
            "Correct the file that is wrong."
        )


def _set_lowercase(backend: Tokenizer, lowercase: bool, path: Path) -> None:
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        normalizer.lowercase = lowercase
        backend.normalizer = normalizer
    elif lowercase != (backend.encode("A").ids == backend.encode("a").ids):
        raise ModelError(
            f"{path} itself defines whether text is lower-cased, and this cannot be changed. Leave the option out."
        )


def _frame_of_tokenizer_json(backend: Tokenizer, options: TokenizerOptions) -> Frame:
    """The frame that the file describes, else the first whose start and end are in the vocabulary."""
    described = frame_in(backend, options.settings)
    if described is not None:
        return described
    for name in ("bert", "xlnet", "roberta", "gpt2"):  # XLNet's pieces include those of RoBERTa's
        frame = FRAMES[name]
        if all(backend.token_to_id(frame.specials[role]) is not None for role in ("start", "end")):
            return frame
    return FRAMES["none"]


# --- WordPiece -------------------------------------------------------------------------------------------------------


def _read_wordpiece(paths: Sequence[Path], options: TokenizerOptions) -> Tokenizer:
    """BERT's vocabulary, one piece per line. Without a setting, text is lower-cased if no piece has a capital."""
    [path] = paths
    pieces = _lines(path)
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    unknown = str(FRAMES["bert"].specials["unknown"])
    if unknown not in vocabulary:
        raise ModelError(f"{path} has no piece {unknown}, so it is not a WordPiece vocabulary with one piece per line.")
    specials = set(FRAMES["bert"].specials.values())
    has_capitals = any(piece != piece.lower() for piece in pieces if piece not in specials and piece[:7] != "[unused")
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=options.lowers(default=not has_capitals),
        handle_chinese_chars=bool(options.settings.get("tokenize_chinese_chars", True)),
        strip_accents=options.settings.get("strip_accents"),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


# --- byte-pair encoding ----------------------------------------------------------------------------------------------


def _read_bpe(paths: Sequence[Path], options: TokenizerOptions) -> Tokenizer:
    """Pieces with ids, and merges: over bytes (GPT-2 and after), or over letters with ends of words (GPT)."""
    vocabulary, merges = _vocabulary(paths[0]), _merges(paths[1])
    if any(piece.endswith("</w>") for piece in vocabulary):
        return _letter_bpe(vocabulary, merges, paths)
    return _byte_bpe(vocabulary, merges, options, paths)


def _read_roberta(paths: Sequence[Path], options: TokenizerOptions) -> Tokenizer:
    """GPT-2's pieces in the order of fairseq's dict.txt, whose lines hold GPT-2's ids; four specials come before."""
    vocabulary, merges, lines = _vocabulary(paths[0]), _merges(paths[1]), _lines(paths[2])
    by_id = {str(id): piece for piece, id in vocabulary.items()}
    names = [line.rpartition(" ")[0] for line in lines]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(by_id.get(name, name) for name in names), "<mask>"]
    if by_id.keys() - set(names):
        raise ModelError(f"{paths[2]} lacks some of the pieces of {paths[0]}; they do not belong together.")
    return _byte_bpe({piece: id for id, piece in enumerate(pieces)}, merges, options, paths)


def _byte_bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], options: TokenizerOptions, paths: Sequence[Path]
) -> Tokenizer:
    backend = Tokenizer(_bpe_model(paths, vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(options.settings.get("add_prefix_space", False))
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _letter_bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], paths: Sequence[Path]) -> Tokenizer:
    """GPT's own splitting needs old packages; BERT's, which other libraries use instead, is closest to it."""
    model = _bpe_model(paths, vocab=vocabulary, merges=merges, unk_token="<unk>", end_of_word_suffix="</w>")
    backend = Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return backend


def _bpe_model(paths: Sequence[Path], **settings: Any) -> models.BPE:
    with library_faults(f"{paths[0]} and {paths[1]} do not belong together"):
        return models.BPE(**settings)


def _vocabulary(path: Path) -> dict[str, int]:
    content = read_json(path)
    if not isinstance(content, dict) or not all(isinstance(id, int) for id in content.values()):
        raise ModelError(f"{path} must hold one JSON object from pieces to ids.")
    return content


def _merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for place, line in enumerate(_lines(path)):
        parts = line.split(" ")
        if place == 0 and line.startswith("#version"):
            continue
        if len(parts) != 2:
            raise ModelError(f"Line {place + 1} of {path} must hold two pieces to merge. Got {line!r}.")
        merges.append((parts[0], parts[1]))
    return merges


def _lines(path: Path) -> list[str]:
    """The lines of a file; only line feeds end one, since vocabularies hold other characters that might."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not text in UTF-8 ({error}).") from None
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _frame_of_bpe(backend: Tokenizer, options: TokenizerOptions) -> Frame:
    if backend.token_to_id("<s>") is not None and backend.token_to_id("</s>") is not None:
        return FRAMES["roberta"]
    return FRAMES["gpt2" if backend.token_to_id("<|endoftext|>") is not None else "gpt"]


# --- SentencePiece ---------------------------------------------------------------------------------------------------


def _read_sentencepiece(paths: Sequence[Path], options: TokenizerOptions) -> EncodingBackend:
    """The file of ALBERT, XLNet or T5; its pieces show which one it is."""
    model = sentencepiece.read_model(paths[0])
    texts = {piece.text for piece in model.pieces}
    before: list[Any] = []
    if "[CLS]" in texts or "<cls>" in texts:
        before = _cleaning(options, lowercase=options.lowers(default="[CLS]" in texts))
    elif options.frame == "t5" or (options.frame is None and {"<pad>", "</s>"} <= texts and "<s>" not in texts):
        n = options.settings.get("extra_ids", 100)
        if not isinstance(n, int) or not 0 <= n <= MOST_SENTINELS:
            raise ModelError(
                f"'extra_ids' in tokenizer_config.json must be from 0 to {MOST_SENTINELS:,}. Got {n!r} instead."
            )
        sentinels = [f"<extra_id_{k}>" for k in reversed(range(n))]
        new = [_control(piece) for piece in sentinels if piece not in texts]
        model = dataclasses.replace(model, pieces=[*model.pieces, *new])
    return _marked(model, before)


def _read_xlm_roberta(paths: Sequence[Path], options: TokenizerOptions) -> EncodingBackend:
    """XLM-R's file has SentencePiece's specials; its ids are fairseq's, which are one higher."""
    model = sentencepiece.read_model(paths[0])
    if [piece.text for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise ModelError(f"{paths[0]} must begin with the pieces <unk>, <s> and </s>, as XLM-RoBERTa's file does.")
    specials = [_control("<s>"), _control("<pad>"), _control("</s>"), model.pieces[0]]
    model = dataclasses.replace(model, pieces=[*specials, *model.pieces[3:], _control("<mask>")])
    return _marked(model)


def _cleaning(options: TokenizerOptions, *, lowercase: bool) -> list[Any]:
    """The normalization of ALBERT and XLNet before SentencePiece."""
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not options.settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*steps, normalizers.Lowercase()] if lowercase else steps


def _control(text: str) -> Piece:
    return Piece(text, 0.0, Kind.CONTROL)


def _marked(model: sentencepiece.SentencePieceModel, cleaning: Sequence[Any] = ()) -> EncodingBackend:
    """A tokenizer whose control pieces are marked as special; masks are marked later, since they may take blanks."""
    backend = sentencepiece.backend(model, cleaning)
    names = [piece.text for piece in model.pieces if piece.kind == Kind.CONTROL and "mask" not in piece.text.lower()]
    backend.add_special_tokens(names)
    normalizer = normalizers.Sequence(list(cleaning)) if cleaning else None
    return EncodingBackend(backend, SentencePieceEncoder(model, normalizer))


def _frame_of_sentencepiece(backend: Tokenizer, options: TokenizerOptions) -> Frame:
    names = {"[CLS]": "albert", "<cls>": "xlnet", "<s>": "roberta", "</s>": "t5"}
    return FRAMES[next((name for piece, name in names.items() if backend.token_to_id(piece) is not None), "none")]


LAYOUTS: tuple[Layout, ...] = (
    Layout(files=("tokenizer.json",), read=_read_tokenizer_json, usual_frame=_frame_of_tokenizer_json),
    Layout(
        files=("vocab.txt",),
        read=_read_wordpiece,
        usual_frame=lambda backend, options: FRAMES["bert"],
        masks_take_blanks=False,
    ),
    Layout(files=("vocab.json", "merges.txt"), read=_read_bpe, usual_frame=_frame_of_bpe),
    Layout(files=("encoder.json", "vocab.bpe", "dict.txt"), read=_read_roberta, usual_frame=_frame_of_bpe),
    Layout(files=("encoder.json", "vocab.bpe"), read=_read_bpe, usual_frame=_frame_of_bpe),
    Layout(files=("encoder_bpe_40000.json", "vocab_40000.bpe"), read=_read_bpe, usual_frame=_frame_of_bpe),
    Layout(files=("sentencepiece.bpe.model",), read=_read_xlm_roberta, usual_frame=_frame_of_sentencepiece),
    Layout(files=("spiece.model",), read=_read_sentencepiece, usual_frame=_frame_of_sentencepiece),
)
"""The layouts that `load_tokenizer` looks for, in this order."""


def load_tokenizer(
    folder: str | Path, *, frame: Frame | str | None = None, lowercase: bool | None = None
) -> PieceTokenizer:
    """The tokenizer in a folder, whichever of the known layouts its files have.

    `frame` is a name (`framing.FRAMES`) or a frame; None takes that of the files, or their usual one. `lowercase` None
    does the same; a bare vocab.txt lower-cases if none of its pieces has a capital.
    """
    place = Path(folder)
    layout = _layout(place)
    requested = get_frame(frame) if isinstance(frame, str) else frame
    options = TokenizerOptions(
        settings=_settings(place), lowercase=lowercase, frame=frame if isinstance(frame, str) else None
    )
    read = layout.read([place / name for name in layout.files], options)
    backend, encoder = read if isinstance(read, EncodingBackend) else (read, None)
    if isinstance(frame, Frame):
        chosen, specials = frame, dict(frame.specials)
    else:
        usual = layout.usual_frame(backend, options) if requested is None else requested
        described = frame_in(backend, options.settings)
        chosen = frame_of_folder(usual, described)
        specials = find_specials(backend, usual, options.settings)
        if described is not None:
            specials |= {role: piece for role, piece in described.specials.items() if role in described.needed}
    mark_specials(backend, specials, masks_take_blanks=layout.masks_take_blanks)
    return PieceTokenizer(backend, chosen.replace(specials=specials), encoder)


def _layout(folder: Path) -> Layout:
    for layout in LAYOUTS:
        if all((folder / name).is_file() for name in layout.files):
            return layout
    known = "; ".join(" with ".join(layout.files) for layout in LAYOUTS)
    raise ModelError(f"{folder} has no tokenizer. Looked for: {known}. Put the files of one of these beside the model.")


def _settings(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            content = read_json(path)
            if not isinstance(content, dict):
                raise ModelError(f"{path} must hold one JSON object. Got a {type(content).__name__}.")
            refuse_other_pieces(content, path)
            settings.update(content)
    return settings
