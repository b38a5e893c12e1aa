"""Checks the content and the metadata of built wheels and sdists."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

from release.building import Distribution

TOP_LEVEL = {
    "faultline-queue": {"faultline", "pytest_faultline.py"},
    "faultline-drills": {"faultline_drills"},
}
# Modules that inject faults or measure; only the drills have them.
FAULT_INJECTION = {
    "bench",
    "campaign",
    "explorer",
    "faultline_drills",
    "mutants",
    "nemesis",
    "proxy",
    "scenarios",
    "soak",
    "sweep",
}
NEEDED = {
    "faultline-queue": {
        "faultline/cli/project_template/tasks.py.template",
        "faultline/py.typed",
        "faultline/sql/schema.sql",
        "faultline/sql/protocol.sql",
        "faultline/inspector/web/index.html",
        "faultline/inspector/web/vendor/preact.js",
    },
    "faultline-drills": {"faultline_drills/py.typed"},
}
IN_EVERY_SDIST = {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
URLS = {"Homepage", "Documentation", "Source", "Changelog", "Issues"}


def problems_of(distribution: Distribution) -> list[str]:
    """Everything that is wrong with a distribution; empty if it may be uploaded."""
    with zipfile.ZipFile(distribution.wheel) as wheel:
        names = set(wheel.namelist())
    found = [
        *_wheel_problems(distribution, names),
        *_metadata_problems(metadata_of(distribution.wheel)),
        *_sdist_problems(distribution.sdist),
    ]
    return [f"{distribution.name}: {problem}" for problem in found]


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def _wheel_problems(distribution: Distribution, names: set[str]) -> Iterator[str]:
    code = {name for name in names if ".dist-info/" not in name}
    about = {name.partition(".dist-info/")[2] for name in names - code}
    for name in sorted(code):
        parts = PurePosixPath(name).parts
        if parts[0] not in TOP_LEVEL[distribution.name]:
            yield f"the wheel would install {parts[0]} at the top level"
        is_test = parts[-1].startswith(("test_", "conftest")) and not name.endswith(".template")
        if "tests" in parts or is_test:
            yield f"the wheel has the test {name}"
        modules = {part.removesuffix(".py") for part in parts}
        if distribution.name == "faultline-queue" and modules & FAULT_INJECTION:
            yield f"the wheel has fault injection: {name}"
    for name in sorted(NEEDED[distribution.name] - code):
        yield f"the wheel lacks {name}"
    for name in sorted(_source_files(distribution) ^ code):
        yield f"the wheel and the source differ in {name}"
    for name in sorted({"METADATA", "licenses/LICENSE", "entry_points.txt"} - about):
        yield f"the wheel lacks its {name}"


def _source_files(distribution: Distribution) -> set[str]:
    folder = distribution.source / "src"
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def _metadata_problems(metadata: Message) -> Iterator[str]:
    urls = {value.partition(",")[0] for value in metadata.get_all("Project-URL", [])}
    if urls != URLS:
        yield f"the addresses are {sorted(urls)}"
    for field in ("Summary", "Keywords", "License-Expression", "Requires-Python", "Classifier"):
        if not metadata.get(field):
            yield f"the metadata lacks {field}"
    if metadata.get("Description-Content-Type") != "text/markdown":
        yield "the description is not Markdown"


def _sdist_problems(sdist: Path) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in sorted(IN_EVERY_SDIST - names):
        yield f"the sdist lacks {name}"
    for name in sorted(names):
        if any(part in (".venv", "__pycache__", ".git") for part in Path(name).parts):
            yield f"the sdist has {name}"
