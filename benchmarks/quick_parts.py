"""What `quick.py` runs: scripts with smaller loads, and what they leave out; and which scripts it does not run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Part:
    """A script with its load."""

    name: str
    script: str
    load: str
    """Its options; `{data}` is the folder of POLYSEME_DATA."""
    tiny: str
    """Its options with `--tiny`."""
    limit: float
    """The seconds after which it is stopped; with `--tiny` the time of the whole run counts alone."""
    left_out: str = ""
    """What the whole load of the script has, and this one does not."""
    environment: Mapping[str, str] = field(default_factory=dict)
    capability: str = ""
    """The instruction set without which the part is skipped."""

    def options(self, *, tiny: bool) -> list[str]:
        """The options of the script, one by one."""
        data = os.environ.get("POLYSEME_DATA", "")
        return [each.replace("{data}", data) for each in (self.tiny if tiny else self.load).split()]


PARTS = (
    Part(
        name="embed",
        script="embed_cpu.py",
        load="--sentences 300 --rounds 3 --compiled",
        tiny="--sentences 16 --rounds 1",
        limit=150,
        left_out="2,000 sentences, 5 rounds; the pipeline compiled",
    ),
    Part(
        name="generate",
        script="generate.py",
        load="--device cpu --size gpt2 --rows 1 16 --precisions bf16 --new 32 --rounds 3",
        tiny="--device cpu --size gpt2 --rows 1 --peers dynamic --precisions --new 4 --rounds 1",
        limit=150,
        left_out="texts of 64 pieces, 5 rounds; int8; a static cache in bf16",
    ),
    Part(
        name="finetune",
        script="finetune.py",
        load="-m minilm --device cpu --batch-size 8 32 --examples 192 --dev 200 --rounds 2 --compile-steps 8",
        tiny="-m minilm --device cpu --batch-size 8 --examples 16 --dev 16 --rounds 1 --peers trainer",
        limit=200,
        left_out="1,000 examples, batch size 64, 3 rounds; all of dev; the compiled Trainer at batch size 32",
    ),
    Part(
        name="corpus",
        script="corpus.py",
        load="{data}/corpus/wiki-00.txt.xz {data}/corpus/books-00.txt.xz --rounds 3 --no-memory",
        tiny="{data}/corpus/books-00.txt.xz --rounds 1 --no-memory",
        limit=90,
        left_out="other texts than wiki-00 and books-00; peak memory",
    ),
    Part(
        name="start",
        script="cold_start.py",
        load="--rounds 3",
        tiny="--rounds 1",
        limit=90,
        left_out="9 rounds",
    ),
    Part(
        name="embed-avx2",
        script="embed_cpu.py",
        load="--sentences 150 --rounds 3",
        tiny="--sentences 16 --rounds 1",
        limit=90,
        left_out="2,000 sentences, 5 rounds; sentence-transformers compiled",
        environment={"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capability="AVX512",
    ),
    Part(
        name="generate-seq2seq",
        script="generate.py",
        load="--device cpu --size bart-base t5-small --rows 1 --peers dynamic --precisions --new 32 --rounds 3",
        tiny="--device cpu --size t5-small --rows 1 --peers dynamic --precisions --new 4 --rounds 1",
        limit=60,
        left_out="batch size 16, texts of 64 pieces, 5 rounds; bf16, int8; a static cache, compiled",
    ),
    Part(
        name="probe",
        script="probe.py",
        load="--max-items 1500",
        tiny="--max-items 50",
        limit=90,
        left_out="all sentences of UD-EWT's train and test",
    ),
    Part(
        name="vectors",
        script="trained_vectors.py",
        load="--epochs 1",
        tiny="--epochs 1",
        limit=60,
        left_out="5 epochs; cbow, fastText and GloVe; several rounds",
    ),
    Part(
        name="vector-files",
        script="static_vectors.py",
        load="--words 50000 --rounds 3",
        tiny="--words 500 --rounds 1",
        limit=40,
        left_out="400,000 words; published files",
    ),
    Part(
        name="packed",
        script="packed.py",
        load="--device cpu --dtype float32 --layers 3 --width 256 --rows 300 --rounds 3",
        tiny="--device cpu --dtype float32 --layers 1 --width 64 --rows 20 --rounds 1",
        limit=60,
        left_out="1,000 rows, 6 layers of width 384, 7 rounds",
    ),
    Part(
        name="pruned",
        script="pruned.py",
        load="--device cpu --dtype float32 --pieces 2048 --lengths 32 128 --rounds 5",
        tiny="--device cpu --dtype float32 --pieces 128 --lengths 32 --layers 1 --rounds 1",
        limit=40,
        left_out="rows of 512 pieces, batches of 4,096, 11 rounds",
    ),
    Part(
        name="albert",
        script="albert_bert.py",
        load="--device cpu --rows 2 --length 64 --rounds 5",
        tiny="--device cpu --rows 1 --length 8 --rounds 1",
        limit=40,
        left_out="8 rows of 128 pieces, 11 rounds",
    ),
)
"""In the order of the floors they hold: what the time does not last for is at the end."""

NOT_RATIOS = {
    "attention_page.py": "how long a browser takes to open a page; no ratio",
    "growth.py": "time and memory against the size of the work; no ratio",
    "growth_point.py": "one size of a job of growth.py",
    "generate_precision.py": "perplexity in bf16 and int8; no ratio",
    "ngram_kenlm.py": "equal scores, not speed; needs an ARPA file and KenLM",
    "score.py": "all of BLiMP, without a peer",
}
GPU_SCRIPTS = (
    "embed_gpu.py",
    "generate_kernels.py",
    "gpu_floors.py",
    "pretrain_gpu.py",
    "recorded_step.py",
    "recurrent_gpu.py",
)
