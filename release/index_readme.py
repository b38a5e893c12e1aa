"""Makes the README fit for a package index, which resolves no relative links.

Hatchling runs `IndexReadme` for every build: see [tool.hatch.metadata.hooks.custom] in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/faultline-queue/faultline"
FILES = "https://raw.githubusercontent.com/faultline-queue/faultline"

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_BLOCK = re.compile(r"(^ *```.*?^ *``` *$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_HAS_SCHEME = re.compile(r"\w+:")


def absolute_links(text: str, version: str) -> str:
    """Let every relative link and image of a Markdown text name the release's tag.

    Code stays as it is. Comments are for tests that run the README, and are left out.
    """
    parts = _BLOCK.split(_COMMENT.sub("", text))
    # Every second part is code, because the pattern has one group.
    parts[::2] = [_LINK.sub(lambda found: _absolute(found, version), part) for part in parts[::2]]
    return "".join(parts)


def _absolute(found: re.Match[str], version: str) -> str:
    target = found["target"]
    if _HAS_SCHEME.match(target) or target.startswith("#"):
        return found.group()
    base = f"{FILES}/v{version}" if found["image"] else f"{REPOSITORY}/blob/v{version}"
    return f"{found['image']}[{found['text']}]({base}/{target})"


class IndexReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, metadata["version"]),
        }
