"""The libraries are the ones that their note names, and nothing is fetched from elsewhere."""

from __future__ import annotations

import hashlib
import re

from faultline.inspector.settings import WEB

VENDOR = WEB / "vendor"
KINDS = (".js", ".css", ".html", ".svg")
# What turns text into markup or code, and what is elsewhere.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function"
    r"|https?://(?!www\.w3\.org/)"
)


def test_every_vendored_file_is_the_one_that_the_note_names() -> None:
    note = (VENDOR / "README.md").read_text()
    noted = {name: digest for digest, name in re.findall(r"([0-9a-f]{64})  (\S+)", note)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.suffix in KINDS
    }
    assert noted == found


def test_our_own_files_use_no_markup_sinks_and_no_other_origin() -> None:
    ours = [path for path in WEB.rglob("*") if path.suffix in KINDS and path.parent != VENDOR]
    assert {"index.html", "main.js", "tokens.css"} <= {path.name for path in ours}
    guilty = {path.name: found for path in ours if (found := SINKS.findall(path.read_text()))}
    assert guilty == {}
