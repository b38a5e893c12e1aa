"""Options that several drills have, spelled and explained in one place."""

from __future__ import annotations

from pathlib import Path

import click

from faultline_drills.subjects import Subject

subject_option = click.option(
    "--subject",
    type=click.Choice([each.value for each in Subject]),
    default=Subject.FAULTLINE.value,
    show_default=True,
    help="naive: the same worker and tables without the fence, which the drill must find out.",
)
save_to_option = click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where reports and histories go; those of a drill that found something always go somewhere.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")
