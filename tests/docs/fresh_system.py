"""A PATH like that of a fresh Debian.

It has python3, but neither python nor faultline, and its pip installs nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDERS = (Path("/usr/bin"), Path("/bin"))
_LEFT_OUT = ("python", "pip", "pydoc", "faultline", "pytest", "pyenv")
# What `pip install` says outside of a virtual environment.
_PIP_OF_THE_SYSTEM = "#!/bin/sh\necho 'error: externally-managed-environment' >&2\nexit 1\n"
_MADE_PROGRAMS = ("faultline", "pytest")
BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable))

# Stands for `python3 -m venv` in a test that installs nothing: the environment it makes runs this
# interpreter, and its `pip install` only makes the commands of this checkout available.
_PYTHON_OF_THE_SYSTEM = """#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec {base} -I "$@"; fi
mkdir -p "$3/bin" && cd "$3/bin" || exit 1
printf '#!/bin/sh\\nexec {python} "$@"\\n' > python
printf '#!/bin/sh\\ncd "$(dirname "$0")" && ln -sf {programs} .\\n' > pip
chmod +x python pip
echo "PATH='$PWD':\\"\\$PATH\\"; hash -r" > activate
"""


def make_path(folder: Path) -> Path:
    """Make the folder of programs, in which python3 makes real environments."""
    folder.mkdir()
    programs = {each.name: each for source in _FOLDERS for each in source.iterdir()}
    for name, program in programs.items():
        if not name.startswith(_LEFT_OUT):
            (folder / name).symlink_to(program)
    (folder / "python3").symlink_to(BASE_PYTHON)
    _write_program(folder / "pip", _PIP_OF_THE_SYSTEM)
    return folder


def make_path_without_installing(folder: Path) -> Path:
    """Make the folder; environments made with its python3 have this checkout."""
    make_path(folder)
    own = Path(sys.executable).parent
    (folder / "python3").unlink()
    text = _PYTHON_OF_THE_SYSTEM.format(
        base=BASE_PYTHON,
        python=sys.executable,
        programs=" ".join(str(own / name) for name in _MADE_PROGRAMS),
    )
    _write_program(folder / "python3", text)
    return folder


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
