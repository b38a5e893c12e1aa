"""Vendored libraries match their hashes, and the dashboard loads nothing else."""

from __future__ import annotations

import hashlib
import re

from faultline.inspector.inspector_settings import WEB

VENDOR = WEB / "vendor"
KINDS = (".js", ".css", ".html", ".svg")
# Functions that turn text into markup or code, and URLs of other hosts.
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function"
    r"|https?://(?!www\.w3\.org/)"
)


def test_every_vendored_file_has_its_recorded_hash() -> None:
    note = (VENDOR / "README.md").read_text()
    noted = {name: digest for digest, name in re.findall(r"([0-9a-f]{64})  (\S+)", note)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.suffix in KINDS
    }
    assert noted == found


def test_the_dashboards_files_use_no_markup_sinks_and_no_other_origin() -> None:
    ours = [path for path in WEB.rglob("*") if path.suffix in KINDS and path.parent != VENDOR]
    assert {"index.html", "main.js", "tokens.css"} <= {path.name for path in ours}
    guilty = {path.name: found for path in ours if (found := SINKS.findall(path.read_text()))}
    assert guilty == {}
