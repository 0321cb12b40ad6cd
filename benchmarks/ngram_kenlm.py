"""Scores of an ARPA file by KenLM, beside polyseme's of the same file or model.

    polyseme convert -m models/kn5 --to arpa -o kn5.arpa
    polyseme score test.txt -m models/kn5 --by piece -o ours.jsonl
    python benchmarks/ngram_kenlm.py kn5.arpa test.txt ours.jsonl [-o results.json]

It compares scores, not speeds. It needs `kenlm` (0.3.0) and nothing of polyseme, so that it runs in an environment of
its own. Each line of the text is words with blanks between them. KenLM has single precision, and so have the
differences. Its perplexity counts the end of each line that is not blank, as `polyseme evaluate wikitext2` does.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
from pathlib import Path

from measure import need, skip


def main() -> None:
    """Compare word by word, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arpa", nargs="?")
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("ours", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    settings = parser.parse_args()
    if settings.ours is None:
        skip("it needs an ARPA file, a text and its scores by polyseme as arguments (see --help)")
    need("kenlm")
    import kenlm

    model = kenlm.Model(settings.arpa)
    opened = lzma.open if settings.text.suffix == ".xz" else open
    with opened(settings.text, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    with settings.ours.open(encoding="utf-8") as file:
        ours = [json.loads(line) for line in file]
    largest = total_ours = total_theirs = with_ends = 0.0
    n_words = n_ends = 0
    for line, record in zip(lines, ours, strict=True):
        if not line:
            continue
        theirs = [score for score, _, _ in model.full_scores(line, bos=True, eos=True)]
        mine = [each / math.log(10) for each in record["log_probs"]]
        assert len(mine) == len(theirs) - 1, line
        largest = max([largest, *(abs(one - other) for one, other in zip(mine, theirs, strict=False))])
        total_ours, total_theirs = total_ours + sum(mine), total_theirs + sum(theirs[:-1])
        with_ends += sum(theirs)
        n_words, n_ends = n_words + len(mine), n_ends + 1
    results = {
        "words": n_words,
        "lines": n_ends,
        "order": model.order,
        "largest difference of a word, log10": largest,
        "log10 of all words, polyseme": total_ours,
        "log10 of all words, kenlm": total_theirs,
        "perplexity with ends of lines, kenlm": 10 ** (-with_ends / (n_words + n_ends)),
    }
    print(json.dumps(results, indent=2))
    if settings.output is not None:
        settings.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
