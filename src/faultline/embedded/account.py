"""The operating system account of the server.

The server runs as the current user. PostgreSQL refuses to run as root, so root starts it as an
unprivileged account; this module then makes the programs and the data reachable for that account.
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


def server_account() -> pwd.struct_passwd | None:
    """Return the server's account if it is not the current user's."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def can_enter(directory: Path) -> bool:
    """Tell whether the server's account may enter `directory` and its parents.

    For the current user's account PostgreSQL itself reports the problem.
    """
    account = server_account()
    if account is None:
        return True

    def enterable(step: os.stat_result) -> bool:
        wanted = stat.S_IXUSR if step.st_uid == account.pw_uid else stat.S_IXOTH
        return bool(step.st_mode & wanted)

    return all(enterable(step.stat()) for step in (directory, *directory.parents))


def make_directory(directory: Path) -> None:
    """Create a directory that the server can enter; existing ones are not changed."""
    for step in (*reversed(directory.parents), directory):
        if not step.exists():
            step.mkdir(exist_ok=True)
            if server_account():  # independent of root's umask
                step.chmod(0o755)


def chown_to_server_account(*paths: Path) -> None:
    """Make the server's account the owner of `paths`."""
    if account := server_account():
        for path in paths:
            os.chown(path, account.pw_uid, account.pw_gid)


def reachable_binaries(binaries: Path) -> Path:
    """Return `binaries`, or a copy of them that the server's account can reach."""
    program = (binaries / "postgres").stat()
    if not server_account() or (program.st_mode & stat.S_IXOTH and can_enter(binaries.resolve())):
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    source = f"{binaries.resolve()} {program.st_mtime_ns} {program.st_size}"
    copy = _SHARED_CACHE / hashlib.sha256(source.encode()).hexdigest()[:16]
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
        _make_world_readable(staging)
        try:
            staging.rename(copy)
        except OSError:  # another process made the same copy first
            if not copied_binaries.is_dir():
                raise
    return copied_binaries


def _make_world_readable(tree: Path) -> None:
    """Copy the owner's read and execute permissions to all users."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)
