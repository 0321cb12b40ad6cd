"""The page of attention in a real browser: clicks, pointing, keys, and hostile text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyseme
from polyseme.analysis.attention_findings import AttentionFindings
from polyseme.plots.attention_page import ATTENTION_SCRIPT
from tiny_models import tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser"),
]
HOSTILE = [
    "Dawn",
    "</script><img src=x onerror=\"document.title='run'\">",
    "broke",
    "<script>document.title='run'</script>",
]

DRIVER = """
const result = {}, section = document.querySelector(".attention");
const told = () => section.querySelector(".told").textContent;
function under(element) {
  element.scrollIntoView({ block: "center" });
  const box = element.getBoundingClientRect();
  const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  if (!element.contains(hit)) throw new Error("something lies over " + element.outerHTML);
  return hit;
}
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const pressed = side => Array.from(section.querySelectorAll("." + side + " button"), each => each.ariaPressed);
try {
  const heads = Array.from(section.querySelectorAll(".heads button"));
  result.maps = document.querySelectorAll(".attention").length;
  result.labels = heads.map(each => each.ariaLabel);
  result.first = section.dataset.shown;
  under(heads[2]).click();
  result.clicked = section.dataset.shown;
  heads[2].focus();
  press(heads[2], "ArrowDown");
  result.down = [section.dataset.shown, document.activeElement.ariaLabel];
  press(document.activeElement, "ArrowRight");
  result.right = [section.dataset.shown, section.querySelector("h3").textContent];
  press(document.activeElement, "End");
  result.end = section.dataset.shown;
  press(document.activeElement, "ArrowLeft");
  press(document.activeElement, "Home");
  result.home = section.dataset.shown;
  under(heads.find(each => each.ariaLabel === "layer 2, head 3")).click();
  result.stops = heads.filter(each => each.tabIndex === 0).length;
  const words = section.querySelectorAll(".from button"), others = section.querySelectorAll(".to button");
  result.words = Array.from(words, each => each.textContent);
  words[1].dispatchEvent(new PointerEvent("pointerenter"));
  result.pointed = told();
  result.shaded = Array.from(others, each => each.style.background !== "");
  section.querySelector(".links").dispatchEvent(new PointerEvent("pointerleave"));
  result.left = told();
  under(words[1]).click();
  section.querySelector(".links").dispatchEvent(new PointerEvent("pointerleave"));
  result.kept = told();
  words[1].focus();
  press(words[1], "ArrowRight");
  result.across = [told(), pressed("to").indexOf("true")];
  press(document.activeElement, "Escape");
  result.escaped = told();
  const large = section.querySelector(".matrix"), box = large.getBoundingClientRect();
  under(large);
  large.dispatchEvent(new PointerEvent("pointermove", {
    clientX: large.getBoundingClientRect().right - 3, clientY: large.getBoundingClientRect().bottom - 3 }));
  result.cell = large.title;
  const pixel = heads[0].querySelector("canvas").getContext("2d").getImageData(0, 0, 1, 1).data;
  result.opaque = pixel[3];
  result.fits = large.offsetWidth <= large.parentElement.clientWidth;
  result.wide = document.documentElement.scrollWidth <= document.documentElement.clientWidth;
} catch (error) { result.error = String(error.stack); }
const written = document.createElement("pre");
written.id = "result";
written.textContent = JSON.stringify(result);
document.body.append(written);
"""


def in_browser(
    findings: AttentionFindings, folder: Path, monkeypatch: pytest.MonkeyPatch, driver: str = DRIVER
) -> tuple[dict[str, Any], str]:
    """What the driver saw, and the page as it then was. It is a part of the page's script, which alone may run."""
    monkeypatch.setattr(AttentionFindings, "page_script", f"{ATTENTION_SCRIPT}\n{driver}")
    path = folder / "page.html"
    path.write_text(findings.html(), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--window-size=1200,1000", "--dump-dom"]
    ended = subprocess.run(
        [*command, f"--user-data-dir={folder / 'browser'}", path.as_uri()], capture_output=True, check=True
    )
    dom = ended.stdout.decode("utf-8")
    found = re.search(r'<pre id="result">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None, dom[-2000:]
    result = json.loads(unescape(found[1]))
    assert "error" not in result, result["error"]
    return result, dom


def test_clicks_keys_and_pointing_show_what_they_point_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = polyseme.attention("Dawn broke, and the vase broke.", model=tiny_model("bert"), rollout=True)
    result, _ = in_browser(found, tmp_path, monkeypatch)
    [each] = found.maps
    words = [unit.text for unit in each.rows]
    assert len(result["labels"]) == 3 * 6 + 5, "heads, means and rollout of 3 layers, and means of all layers"
    assert {"layer 1, head 0", "layer 3, rollout", "mean of all layers, mean of all heads"} <= set(result["labels"])
    assert result["clicked"] == "1 2"
    assert result["down"] == ["2 2", "layer 2, head 2"]
    assert result["right"] == ["2 3", "layer 2, head 3"]
    assert (result["end"], result["home"]) == ("mean mean", "1 0")
    assert result["stops"] == 1, "the tab key stops once at the pictures"
    assert result["words"] == words
    weights = each.layers[1].weights[3]
    best = int(weights[1].argmax())
    shown = re.fullmatch(rf"Dawn looks at: {re.escape(words[best])} (\d\.\d\d), .*", result["pointed"])
    assert shown is not None
    assert float(shown[1]) == pytest.approx(weights[1, best], abs=0.01)
    assert all(result["shaded"])
    assert result["left"].startswith("Point at a word")
    assert result["kept"] == result["pointed"]
    looking = words[int(weights[:, 1].argmax())]
    assert result["across"][0].startswith(f"Dawn is looked at by: {looking} ")
    assert result["across"][1] == 1
    assert result["escaped"].startswith("Point at a word")
    assert result["cell"].startswith("[SEP] → [SEP]: ")
    assert float(result["cell"].split(": ")[1]) == pytest.approx(weights[-1, -1], abs=0.01)
    assert result["opaque"] == 255
    assert result["wide"], "nothing is wider than the window"
    assert result["fits"], "the large picture needs no scrolling"


def test_means_of_the_page_are_means_of_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = polyseme.attention("The vase broke.", model=tiny_model("bert"))
    driver = DRIVER.replace("words[1].dispatchEvent", "heads.at(-1).click();\n  words[1].dispatchEvent", 1)
    result, _ = in_browser(found, tmp_path, monkeypatch, driver)
    mean = np.mean([layer.weights for layer in found.maps[0].layers], axis=(0, 1))
    assert float(result["cell"].split(": ")[1]) == pytest.approx(mean[-1, -1], abs=0.011)


def test_hostile_words_of_a_seq2seq_model_are_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = polyseme.attention(HOSTILE, model=tiny_model("bart", max_positions=200), target=HOSTILE)
    result, dom = in_browser(found, tmp_path, monkeypatch)
    assert result["maps"] == 3
    assert result["fits"]
    assert HOSTILE[1] in result["words"]
    assert "<title>run</title>" not in dom
    assert "<img" not in dom
