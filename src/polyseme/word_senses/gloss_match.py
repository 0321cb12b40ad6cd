"""WordNet's meanings of a word beside the groups of its uses: those whose glosses are nearest.

A gloss is embedded as a text, with its synonyms and examples; its vector is the mean of its words'. Glosses and groups
are different kinds of text, so the mean of each kind is taken away before they are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyseme.embedding.flow import Embedder
from polyseme.text.documents import make_document
from polyseme.text.word_forms import form
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.wordnet import Gloss, WordNet

N_GLOSSES = 3


@dataclass(frozen=True, kw_only=True)
class NearGloss(Gloss):
    """A meaning in WordNet, and how near it is to a group of uses."""

    cosine: float


def nearest_glosses(
    wordnet: WordNet, word: str, embedder: Embedder, means: Floats, center: Floats
) -> tuple[list[list[NearGloss]], str]:
    """For each group the nearest meanings, nearest first; and a note, if WordNet lacks something.

    `means` [K, D] are those of the groups without `center` [D], the mean of all uses.
    """
    glosses = wordnet.glosses(word)
    lacks = "" if wordnet.has_irregular else " Its folder has no lists of irregular forms (*.exc)."
    if not glosses:
        return [[] for _ in means], f"WordNet has no meaning of {word!r}.{lacks}"
    vectors = _gloss_vectors(embedder, word, glosses)
    groups = means if len(means) > 1 else unit(center)[None]  # nothing is left of a single group without its mean
    cosines = unit(vectors - vectors.mean(axis=0) if len(means) > 1 else vectors) @ groups.T
    near = [
        [_near(glosses[place], float(column[place])) for place in np.argsort(-column, kind="stable")[:N_GLOSSES]]
        for column in cosines.T
    ]
    return near, lacks.strip()


def _gloss_vectors(embedder: Embedder, word: str, glosses: Sequence[Gloss]) -> Floats:
    """[glosses, D], of length 1."""
    texts = [
        f"{word} ({', '.join(lemma for lemma in gloss.lemmas if form(lemma) != form(word))}): "
        f"{'. '.join([gloss.definition, *gloss.examples])}"
        for gloss in glosses
    ]
    embedded = embedder([make_document(text) for text in texts])
    return unit(np.stack([unit(document.vectors).mean(axis=0) for document in embedded]))


def _near(gloss: Gloss, cosine: float) -> NearGloss:
    return NearGloss(**vars(gloss), cosine=cosine)
