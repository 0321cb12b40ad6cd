"""The pages can be searched when they are opened from disk: checked in a browser, where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.mark.slow
def test_a_search_finds_pages_without_a_server(tmp_path: Path) -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("there is no browser")
    site = tmp_path / "site"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(site)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    assert "https://" not in (site / "assets" / "iframe-worker.js").read_text()
    address = f"file://{site}/index.html?q=perplexity"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom", address]
    page = subprocess.run([browser, *options], capture_output=True, text=True, check=True).stdout
    found = re.search(r'md-search-result__meta">(\d+) matching documents<', page)
    assert found is not None
    assert int(found[1]) >= 2
