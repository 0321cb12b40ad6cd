"""Small models of two stacks, and XLNet, drawn as for training, over the commonest words of some texts.

Vocabularies are made by rule from counts, since those that the library trains differ a little from process to process.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.text.tokenizer_files import load_tokenizer
from tiny_models import ANGLES, XLNET, tiny_config

SPECIALS = {"t5": ["<pad>", "</s>", "<unk>"], "bart": ANGLES, "xlnet": XLNET}


def small_tokenizer(family: str, texts: Sequence[str], n_words: int = 1500) -> Any:
    """SentencePiece's kind for all, BART's too: whole common words, and letters for the others."""
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text))
    common = sorted(counts, key=lambda word: (-counts[word], word))[:n_words]
    scores = dict.fromkeys(SPECIALS[family], 0.0)
    scores |= dict.fromkeys(["▁", *sorted({letter for text in texts for letter in text} - {" "})], -9.0)
    scores |= {f"▁{word}": -4.0 for word in common}
    made = Tokenizer(models.Unigram(list(scores.items()), unk_id=SPECIALS[family].index("<unk>")))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(SPECIALS[family])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(made.to_str(), encoding="utf-8")
        return load_tokenizer(folder, frame=FAMILIES[family].frame)


def small_model(family: str, texts: Sequence[str], **changes: Any) -> Bundle:
    """A model with its own first weights and without dropout, two layers a stack."""
    tokenizer = small_tokenizer(family, texts)
    rates = ("dropout_rate", "attention_dropout_rate", "inner_dropout_rate", "embedding_dropout_rate")
    sizes: dict[str, Any] = {
        "width": 64,
        "n_layers": 2,
        "inner_width": 128,
        "max_positions": 64,
        "n_pieces": tokenizer.n_pieces,
    }
    sizes |= dict.fromkeys(rates, 0.0)
    if family == "t5":
        sizes["output_scale"] = sizes["width"] ** -0.5
    torch.manual_seed(3)
    family_of = FAMILIES[family]
    return new_bundle(family_of, tiny_config(family, **{**sizes, **changes}), family_of.outputs, tokenizer).eval()
