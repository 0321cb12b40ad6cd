"""What a page of attention weighs, and how long a browser takes to open it.

12 layers of 12 heads over 60 words and two special pieces, with random weights. Chromium opens the page without a
window; the time is from the start of navigation to the end of the load event, when every picture is drawn, read by the
page itself. A page without any attention takes turns with it, for what the browser needs in any case.

    python benchmarks/attention_page.py [--layers 12] [--heads 12] [--words 60] [--rounds 7]
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from measure import machine, skip

from polyseme.analysis.attention_findings import AttentionFindings
from polyseme.analysis.attention_maps import AttentionMap, LayerAttention, Unit
from polyseme.plots.html_page import page

CLOCK = """
addEventListener("load", () => {
  document.querySelectorAll("canvas").forEach(each => each.getContext("2d").getImageData(0, 0, 1, 1));
  document.body.getBoundingClientRect();
  document.body.dataset.opened = performance.now();
});
"""
"""Reads a pixel of every picture, so that none is left to be drawn, and then the time since navigation began."""


def page_of(layers: int, heads: int, words: int) -> tuple[str, str]:
    """The page as `attention` writes it, and the same with a clock."""
    random = np.random.default_rng(0)
    units = [Unit("[CLS]", True), *(Unit(f"word{number}", False) for number in range(words)), Unit("[SEP]", True)]
    n = len(units)
    shown = [
        LayerAttention(number, tuple(range(heads)), random.dirichlet(np.full(n, 0.1), (heads, n)))
        for number in range(1, layers + 1)
    ]
    whole = AttentionMap(part="encoder", window=1, rows=units, columns=units, layers=shown)
    findings = AttentionFindings(model="a model", data=f"{words} words", text="words", maps=[whole])
    plain = findings.html()
    script = AttentionFindings.page_script
    AttentionFindings.page_script = f"{script}\n{CLOCK}"
    try:
        return plain, findings.html()
    finally:
        AttentionFindings.page_script = script


def opened(path: Path, browser: str, profile: str) -> float:
    """Seconds until a page was open."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom"]
    dom = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True).stdout
    found = re.search(r'data-opened="([\d.]+)"', dom)
    if found is None:
        raise SystemExit("The page did not report its time.")
    return float(found[1]) / 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 12), ("heads", 12), ("words", 60), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    settings = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        skip("there is no Chromium to open the page with")
    version = subprocess.run([browser, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(machine("numpy"), version, sep=", ")
    plain, timed = page_of(settings.layers, settings.heads, settings.words)
    pages = {"attention": timed, "empty": page("empty", "<canvas></canvas>", script=CLOCK)}
    seconds: dict[str, list[float]] = {name: [] for name in pages}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in pages.items():
            Path(folder, f"{name}.html").write_text(content, encoding="utf-8")
        for _ in range(settings.rounds):
            for name, each in seconds.items():
                each.append(opened(Path(folder, f"{name}.html"), browser, f"{folder}/profile"))
    print(f"{settings.layers} × {settings.heads} heads over {settings.words} words: {len(plain.encode()) / 1e6:.2f} MB")
    for name, each in seconds.items():
        print(f"{name}: {statistics.median(each):.2f} s until open (median of {len(each)}, slowest {max(each):.2f} s)")


if __name__ == "__main__":
    main()
