"""Whom the server runs as: ourselves, except that PostgreSQL refuses root, who becomes `nobody`.

That account must then be able to reach the programs and the data; this is what sees to it.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

_SHARED_CACHE = Path("/var/cache/faultline")


def other_account() -> pwd.struct_passwd | None:
    """Whom the server runs as, when that is not ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def can_enter(directory: Path) -> bool:
    """Whether the server may pass through `directory`; PostgreSQL itself tells us if we may not."""
    account = other_account()
    if account is None:
        return True

    def enterable(step: os.stat_result) -> bool:
        wanted = stat.S_IXUSR if step.st_uid == account.pw_uid else stat.S_IXOTH
        return bool(step.st_mode & wanted)

    return all(enterable(step.stat()) for step in (directory, *directory.parents))


def make_directory(directory: Path) -> None:
    """Make a directory that the server can enter; what exists stays as it is."""
    for step in (*reversed(directory.parents), directory):
        if not step.exists():
            step.mkdir(exist_ok=True)
            if other_account():  # whatever root's umask
                step.chmod(0o755)


def hand_over(*paths: Path) -> None:
    """Let the server own what we made."""
    if account := other_account():
        for path in paths:
            os.chown(path, account.pw_uid, account.pw_gid)


def runnable(binaries: Path) -> Path:
    """These binaries, or a copy of them where the server's account can reach them."""
    program = (binaries / "postgres").stat()
    if not other_account() or (program.st_mode & stat.S_IXOTH and can_enter(binaries.resolve())):
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    made_from = f"{binaries.resolve()} {program.st_mtime_ns} {program.st_size}"
    copy = _SHARED_CACHE / hashlib.sha256(made_from.encode()).hexdigest()[:16]
    copied_binaries = copy / binaries.relative_to(package.parent)
    if copied_binaries.is_dir():
        return copied_binaries
    make_directory(_SHARED_CACHE)
    with tempfile.TemporaryDirectory(dir=_SHARED_CACHE) as scratch:
        staging = Path(scratch) / "copy"
        # Wheels keep the libraries that the binaries link to beside or inside the package.
        libraries = [package.with_name(f"{package.name}.libs"), package / ".dylibs"]
        for part in (install, *libraries):
            if part.is_dir():
                shutil.copytree(part, staging / part.relative_to(package.parent), symlinks=True)
        _open_to_everyone(staging)
        try:
            staging.rename(copy)
        except OSError:  # another process was faster; its copy is the same
            if not copied_binaries.is_dir():
                raise
    return copied_binaries


def _open_to_everyone(tree: Path) -> None:
    """Let everyone read what we can read, and run what we can run."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)
