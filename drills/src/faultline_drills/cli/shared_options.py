"""Options that several commands of `faultline drill` share."""

from __future__ import annotations

from pathlib import Path

import click

from faultline_drills.subjects import Subject

seed_help = "Seed of all random choices."
subject_option = click.option(
    "--subject",
    type=click.Choice([each.value for each in Subject]),
    default=Subject.FAULTLINE.value,
    show_default=True,
    help="The queue to test. `naive` is the same one without the fence: it must fail.",
)
save_to_option = click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for reports and histories.  [default: reports/drills, only if a rule was broken]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
