"""Runs the Dockerfile's commands without an engine, over the root of this machine.

Each stage is an overlay that keeps what is written, with the Python of the base image's version (if it is
here) at /usr/local, where that image has its own. What is not the same: the rest of the base image.
Needs root, for overlays, chroot and other accounts.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from tests.conftest import roomy_memory
from tests.containers.composition import ROOT
from tests.containers.recipe import Instruction, Stage, stages

BUILD_SECONDS = 600.0
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyo")
_IN_MOUNTS_OF_ITS_OWN = ("unshare", "--mount", "--propagation", "private")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# How this machine reaches packages is its own business, and no part of an image.
_PASSED_ON = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http", "NO_PROXY", "no_proxy")


def why_not() -> str | None:
    """The requirement that this machine lacks; None if it can build images."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs root on Linux, for overlays and chroot"
    if roomy_memory() is None:
        return (
            "it needs 4 GiB in /dev/shm: layers may not lie within the root that they are laid over"
        )
    probe = (
        "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/r &&"
        " mount -t overlay none -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r"
    )
    tried = subprocess.run(
        [*_IN_MOUNTS_OF_ITS_OWN, "sh", "-c", probe], capture_output=True, timeout=30, check=False
    )
    return None if tried.returncode == 0 else f"no overlays: {tried.stderr.decode().strip()}"


class Image:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._mountpoint = home / "root"
        self._mountpoint.mkdir()
        self.built = stages()
        self.environment: dict[str, str] = {}
        self.python = _prefix_of(self.built[-1].base)
        for stage in self.built:
            self._build(stage)

    @property
    def final(self) -> Stage:
        return self.built[-1]

    @property
    def files(self) -> Path:
        """What the last stage has written."""
        return self._written(self.final)

    def _written(self, stage: Stage) -> Path:
        return self._home / f"stage-{self.built.index(stage)}"

    # ── building ─────────────────────────────────────────────────────────────────────────────────

    def _build(self, stage: Stage) -> None:
        self._written(stage).mkdir()
        # The base image's linker knows its libpython; ours is at another path, which has to be set.
        self.environment = {"PATH": _PATH, "LD_LIBRARY_PATH": "/usr/local/lib"}
        folder = "/"
        for instruction in stage.instructions:
            match instruction.word:
                case "ENV":
                    for pair in instruction.words:
                        name, value = pair.split("=", 1)
                        self.environment[name] = Template(value).substitute(self.environment)
                case "WORKDIR":
                    folder = instruction.rest
                    self._inside(stage, folder).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(stage, instruction, folder)
                case "RUN":
                    self._run(stage, instruction.rest, folder)
                case "ARG" | "LABEL" | "USER" | "EXPOSE" | "STOPSIGNAL":
                    pass  # about what is made, not how
                case "HEALTHCHECK" | "ENTRYPOINT" | "CMD":
                    pass
                case other:
                    raise NotImplementedError(other)

    def _inside(self, stage: Stage, path: str) -> Path:
        return self._written(stage) / path.strip("/")

    def _copy(self, stage: Stage, copy: Instruction, folder: str) -> None:
        words = copy.words
        source_root = ROOT
        if words[0].startswith("--from="):
            (source,) = [s for s in self.built if s.name == words[0].removeprefix("--from=")]
            source_root, words = self._written(source), words[1:]
        *sources, target = words
        for source_name in sources:
            found = source_root / source_name.strip("/")
            to = self._inside(stage, os.path.normpath(Path(folder, target)))
            if found.is_dir():
                ignore = None if source_root != ROOT else _NOT_COPIED
                shutil.copytree(found, to, symlinks=True, dirs_exist_ok=True, ignore=ignore)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, to)

    def _run(self, stage: Stage, command: str, folder: str) -> None:
        work = self._home / "work"
        work.mkdir(exist_ok=True)
        given = {n: v for n, v in os.environ.items() if n.startswith(_PASSED_ON)} | self.environment
        mounts = [
            f"mount -t overlay none -o lowerdir=/,upperdir={self._written(stage)},workdir={work}"
            f" {self._mountpoint}",
            *self._of_this_machine(),
        ]
        inside = ["/bin/sh", "-c", f"cd {folder} && {command}"]
        done = subprocess.run(
            self._chrooted(mounts, ["env", "-i", "HOME=/root", *_pairs(given), *inside]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout.decode()}"

    def _of_this_machine(self) -> list[str]:
        root = self._mountpoint
        mounts = [f"mount --rbind /dev {root}/dev", f"mount -t proc proc {root}/proc"]
        if self.python != "/usr":
            mounts.append(f"mount --bind -o ro {self.python} {root}/usr/local")
        return mounts

    def _chrooted(self, mounts: Sequence[str], words: Sequence[str]) -> list[str]:
        script = " && ".join([*mounts, f"exec chroot {self._mountpoint} {shlex.join(words)}"])
        return [*_IN_MOUNTS_OF_ITS_OWN, "sh", "-c", script]

    # ── running ──────────────────────────────────────────────────────────────────────────────────

    def command(
        self, words: Sequence[str], variables: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> list[str]:
        """The command that runs it with a read-only root, without capabilities or root.

        /tmp is in memory. Each step executes the next in its place: one process, one id.
        """
        root = self._mountpoint
        for target in (*mounts, "/tmp"):  # an engine makes what it is to mount on
            self._inside(self.final, target).mkdir(parents=True, exist_ok=True)
        script = [
            f"mount -t overlay none -o ro,lowerdir={self.files}:/ {root}",
            *self._of_this_machine(),
            f"mount -t tmpfs -o size=64m,mode=1777,noexec,nosuid,nodev tmpfs {root}/tmp",
            *(f"mount --bind -o ro {path} {root}{target}" for target, path in mounts.items()),
        ]
        return self._chrooted(script, self._confined(words, variables))

    def joining(self, pid: int, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """What runs a second command beside the one of that process, as health checks are."""
        entered = ["nsenter", f"--target={pid}", "--mount", f"--root=/proc/{pid}/root"]
        return [*entered, *self._confined(words, variables)]

    def _confined(self, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        uid, gid = self.final.the("USER").rest.split(":")
        return [
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"),
            *("--bounding-set=-all", "--inh-caps=-all"),
            *("env", "-i", f"--chdir={self.final.the('WORKDIR').rest}"),
            *_pairs({**self.environment, **variables}),
            *words,
        ]


def _pairs(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def _prefix_of(base: str) -> str:
    """The prefix of that image's Python on this machine, or else of the running one."""
    match = re.fullmatch(r"python:(\d+\.\d+)-slim", base)
    assert match is not None
    candidates = [shutil.which(f"python{match[1]}")]
    candidates += map(str, Path.home().glob(f".pyenv/versions/{match[1]}.*/bin/python{match[1]}"))
    for candidate in (*candidates, sys.executable):
        if candidate is not None:
            ran = subprocess.run(
                [candidate, "-c", "import sys, ensurepip; print(sys.base_prefix)"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            if ran.returncode == 0:
                return ran.stdout.strip()
    raise AssertionError("no Python with ensurepip")
