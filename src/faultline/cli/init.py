"""The command `init`: writes a small project that works as it is."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path

import click

from faultline.errors import InvalidInput

_TEMPLATES = "project_template"
_SUFFIX = ".template"
_FALLBACK_NAME = "jobs"
_NEEDED = "faultline-queue[api,embedded,testing]"  # pytest too; a project's README says the same
_MAX_NAME_LENGTH = 40  # of a project: the names of its table and queue have at most 63


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def init(folder: Path) -> None:
    """Write a small working project into FOLDER.

    It has a task, a table, tests that inject faults, a compose.yaml and settings. FOLDER is the current
    folder if absent. Existing files are never overwritten.
    """
    texts = project_files(project_name(folder))
    existing = sorted(name for name in texts if (folder / name).exists())
    if existing:
        raise InvalidInput(
            f"{folder} already has {', '.join(existing)}; nothing was written",
            hint="faultline init NEW_FOLDER",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        click.echo(f"wrote {folder / name}")
    click.echo("next:")
    if folder != Path():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    for command in (f"pip install '{_NEEDED}'", "python tasks.py", "faultline worker", "pytest"):
        click.echo(f"  {command}")


def project_name(folder: Path) -> str:
    """The folder's name as a name of a distribution, a database, a task and a queue."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower())
    name = name.strip("_")[:_MAX_NAME_LENGTH].rstrip("_")
    return name if name[:1].isalpha() else f"{_FALLBACK_NAME}_{name}".rstrip("_")


def project_files(name: str) -> dict[str, str]:
    """The text of each file of a project, by file name."""
    templates = files("faultline.cli").joinpath(_TEMPLATES)
    return {
        template.name.removesuffix(_SUFFIX): template.read_text("utf-8").replace("{{name}}", name)
        for template in sorted(templates.iterdir(), key=lambda template: template.name)
        if template.name.endswith(_SUFFIX)
    }
