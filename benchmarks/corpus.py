"""How fast a corpus is built, beside `datasets.map` with the same tokenizer, and how much memory it takes.

    python benchmarks/corpus.py [FILES...] [--rounds 3] [--workers 2] [--no-memory] [--figures FILE]

FILES are plain or compressed texts (default: those of POLYSEME_DATA/corpus); the tokenizer is BERT's, uncased, from
POLYSEME_DATA/vocab. polyseme reads the files, splits documents, words and sentences, tokenizes, writes the shards and
computes checksums; `datasets.map` tokenizes documents that are already in memory, and writes them. The pieces are
compared one by one (both treat a `[MASK]` in the text as text).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from measure import add_figures_option, alternate, data_folder, machine, need, publish, ratio, table

FLOOR = 3.2
"""The least expected speed, as a multiple of that of `datasets.map`."""
TIMES = 10
"""How much more text the second build of the memory test reads than the first."""


def build(files: list[Path], output: Path, tokenizer: Path, workers: int) -> Any:
    import polyseme

    return polyseme.build_corpus(files, output=output, tokenizer=tokenizer, held_out=0.0, workers=workers, force=True)


def mapped(texts: list[str], tokenizer: Path, workers: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"), model_max_length=1 << 40, split_special_tokens=True
    )

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        encoded = theirs(
            batch["text"], add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
        )
        return {"pieces": encoded["input_ids"]}

    whole = datasets.Dataset.from_dict({"text": texts})
    return lambda: whole.map(tokenize, batched=True, num_proc=workers, remove_columns=["text"])


def check_equal(corpus: Any, theirs: Any) -> int:
    """Raise if the pieces differ; return their number."""
    import numpy as np

    shard = corpus.shards("train")[0]
    begin = 0
    for end, row in zip(shard.ends.tolist(), theirs["pieces"], strict=True):
        if not np.array_equal(shard.pieces[begin : end - 1], row):
            raise SystemExit("The pieces differ: the figures would mean nothing.")
        begin = end
    return len(shard) - len(shard.ends)


def peak_memory(text: Path, tokenizer: Path, workers: int) -> str:
    """The largest resident size of the building process and of its largest worker, in a process of its own."""
    program = (
        "import resource, sys, tempfile, polyseme\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    settings = dict(output=folder + '/c', tokenizer=sys.argv[2], workers=int(sys.argv[3]))\n"
        "    polyseme.build_corpus(sys.argv[1], **settings)\n"
        "own = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(int(own.split()[1]) // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
    )
    line = [sys.executable, "-c", program, str(text), str(tokenizer), str(workers)]
    ended = subprocess.run(line, capture_output=True, text=True, check=True)
    return " + ".join(f"{size} MB" for size in ended.stdout.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="do not measure the memory")
    add_figures_option(parser)
    options = parser.parse_args()
    need("transformers", "datasets")
    warnings.simplefilter("ignore")
    vocabulary = data_folder("vocab", "bert-base-uncased")
    files = options.files or sorted(data_folder("corpus").glob("*.txt.xz"))

    from polyseme.corpus.document_reader import text_sources
    from polyseme.text.tokenizer_files import load_tokenizer

    [source] = text_sources(files, documents=None, field=None, format=None)
    texts = [text.decode() for stretch in source.stretches() for text in stretch.texts]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir()
        load_tokenizer(vocabulary).save(str(tokenizer))
        run_map = mapped(texts, tokenizer, options.workers)
        n_pieces = check_equal(build(files, folder / "c", tokenizer, options.workers), run_map())
        every: dict[str, list[float]] = {}
        processor: dict[str, float] = {}
        seconds = alternate(
            {
                "polyseme": lambda: build(files, folder / "c", tokenizer, options.workers),
                "datasets.map": run_map,
            },
            options.rounds,
            warm_ups=0,
            processor=processor,
            every=every,
        )
        ours, theirs = (megabytes / seconds[name] for name in ("polyseme", "datasets.map"))
        print(f"{machine('tokenizers', 'datasets', 'transformers')}")
        print(
            f"{megabytes:.1f} MB of text, {n_pieces:,} pieces, identical; {options.workers} processes, medians of "
            f"{options.rounds} alternating rounds\n"
        )
        less = processor["datasets.map"] / processor["polyseme"]
        rows = [
            ["polyseme", f"{ours:.1f}", f"{ours / theirs:.2f} ×", f"{processor['polyseme']:.1f} s", f"{less:.2f} ×"],
            ["datasets.map", f"{theirs:.1f}", "1 ×", f"{processor['datasets.map']:.1f} s", "1 ×"],
        ]
        print(table(["", "MB/s", "ratio", "processor time", "ratio"], rows) + "\n")
        peer = f"datasets.map, batched, {options.workers} processes"
        note = f"{megabytes:.1f} MB, identical pieces; by processor time {less:.2f} ×"
        what = f"build a corpus, {options.workers} processes"
        publish(
            [ratio(every, "datasets.map", "polyseme", what=what, peer=peer, floor=FLOOR, note=note)], options.figures
        )
        if not options.no_memory:
            print(f"\nPeak memory, main process + largest worker, as the text grows {TIMES} times:\n")
            rows = []
            once = "\n\n".join(texts[: len(texts) // 4])
            for times in (1, TIMES):
                path = folder / f"{times}.txt"
                with path.open("w", encoding="utf-8") as file:
                    for turn in range(times):
                        file.write(once.replace(" the ", f" the{turn} ") + "\n\n")
                rows.append([f"{path.stat().st_size / 1e6:.0f} MB", peak_memory(path, tokenizer, options.workers)])
            print(table(["text", "memory"], rows))


if __name__ == "__main__":
    main()
