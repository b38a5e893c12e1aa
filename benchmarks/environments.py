"""Installs each peer once into its own virtual environment or node_modules."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import faultline
from benchmarks.peer import Peer
from benchmarks.processes import Program

ENVIRONMENTS = Path(__file__).parent / ".environments"
_STAMP = "installed.json"
_INSTALL_SECONDS = 600.0
_LAST_LINES = 5
_NEWEST_MINOR = 14


class NotInstalled(Exception):
    """The peer cannot be installed here; the report says why."""


@dataclass(frozen=True)
class Environment:
    program: Program
    versions: dict[str, str]  # of the packages that peer.toml names, as they were installed


def environment_of(peer: Peer, root: Path = ENVIRONMENTS) -> Environment:
    """Install the peer if it is not installed yet, and return its environment."""
    if (
        peer.runtime == "python" and not peer.packages
    ):  # ours: Faultline is installed where this runs
        program = Program((sys.executable, str(peer.program)))
        return Environment(program, {"faultline": faultline.__version__})
    folder = root / peer.name
    wanted = _fingerprint(peer)
    stamp = folder / _STAMP
    installed = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if installed.get("wanted") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if peer.runtime == "python":
            _install_python(peer, folder)
            versions = _python_versions(peer, folder)
        else:
            _install_node(peer, folder)
            versions = _node_versions(peer, folder)
        installed = {"wanted": wanted, "versions": versions}
        stamp.write_text(json.dumps(installed, indent=2) + "\n")
    return Environment(_program(peer, folder), installed["versions"])


def _fingerprint(peer: Peer) -> str:
    """Return a hash of everything that determines the installation."""
    package_json = peer.folder / "package.json"
    parts = [*peer.packages, package_json.read_text() if package_json.is_file() else ""]
    parts.append(f"{peer.python} {sys.version}" if peer.runtime == "python" else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _program(peer: Peer, folder: Path) -> Program:
    if peer.runtime == "python":
        return Program((str(_python_of(folder)), str(peer.program)))
    own_node = folder / "node_modules" / "node" / "bin" / "node"
    node = str(own_node) if own_node.is_file() else shutil.which("node")
    if node is None:
        raise NotInstalled("node is not installed on this machine")
    modules = str(folder / "node_modules")
    return Program((node, str(peer.program)), {"NODE_PATH": modules})


def _install_python(peer: Peer, folder: Path) -> None:
    environment = folder / "venv"
    interpreter = find_interpreter(peer.python)
    if uv := shutil.which("uv"):
        # uv may be able to download an interpreter that this machine does not have.
        wanted = interpreter or str(peer.python)
        _run([uv, "venv", "--quiet", "--python", wanted, str(environment)])
        command = [uv, "pip", "install", "--quiet", "--python", str(_python_of(folder))]
    elif interpreter:
        _run([interpreter, "-m", "venv", str(environment)])
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [str(_python_of(folder)), *pip]
    else:
        raise NotInstalled(f"it needs Python {peer.python}, which is not installed on this machine")
    _run([*command, *peer.packages])


def find_interpreter(wanted: str | None) -> str | None:
    """Return this Python if it fits `wanted` (">=3.12"), else the oldest that does."""
    oldest = tuple(map(int, re.findall(r"\d+", wanted or "3.0")))
    if sys.version_info[:2] >= oldest:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(oldest[1], _NEWEST_MINOR + 1):
        name = f"python3.{minor}"
        for candidate in (shutil.which(name), *pyenv.glob(f"3.{minor}.*/bin/{name}")):
            if candidate and _runs(str(candidate)):
                return str(candidate)
    return None


def _runs(interpreter: str) -> bool:
    """Tell whether the interpreter starts; version managers install dead commands."""
    command = [interpreter, "-c", ""]
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def _install_node(peer: Peer, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not installed on this machine")
    shutil.copy(peer.folder / "package.json", folder)
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    _run([npm, "install", *options, "--prefix", str(folder)])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotInstalled(str(problem)) from None
    if done.returncode != 0:
        output = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotInstalled(" / ".join(output[-_LAST_LINES:]) or f"{command[0]} failed")


def _python_of(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def _python_versions(peer: Peer, folder: Path) -> dict[str, str]:
    names = [re.split(r"[\[=<>~! ]", package)[0] for package in peer.packages]
    code = "import json, sys; from importlib.metadata import version as v;"
    code += " print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    command = [str(_python_of(folder)), "-c", code, *names]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return dict(json.loads(result.stdout)) if result.returncode == 0 else {}


def _node_versions(peer: Peer, folder: Path) -> dict[str, str]:
    wanted = json.loads((peer.folder / "package.json").read_text())["dependencies"]
    found = {}
    for name in [package.rpartition("@")[0] for package in peer.packages] or wanted:
        described = folder / "node_modules" / name / "package.json"
        if described.is_file():
            found[name] = json.loads(described.read_text())["version"]
    return found
