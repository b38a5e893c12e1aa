"""Runs one search: spin, the C compiler and the verifier, and parses its output."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from searches import ENDLESS, Kind, Method, Search

MODEL = Path(__file__).with_name("faultline.pml")
MAX_DEPTH = 20_000
MAX_MEMORY_MB = 6_000
BUILD_TIMEOUT_SECONDS = 120
SEARCH_TIMEOUT_SECONDS = 1_800

# Every step uses shared variables, so partial-order reduction would save nothing and only add its
# side conditions. A search that stops early spends most time in the compiler: no optimisation.
_PLAIN = ("-O2", "-w", "-DNOREDUCE", f"-DMEMLIM={MAX_MEMORY_MB}")
_BUILD = {
    Method.ALL: (*_PLAIN, "-DSAFETY"),
    Method.NEAREST: ("-O0", *_PLAIN[1:], "-DSAFETY", "-DBFS"),
    Method.CYCLES: (*_PLAIN, "-DNP"),
}
_RUN = {Method.ALL: (), Method.NEAREST: (), Method.CYCLES: ("-l",)}
_STORY = re.compile(
    r"^\s*((?:worker \d|clock|operator|reconciler|failover|standby): .*)$", re.MULTILINE
)


class Unusable(Exception):
    """The tools are missing or failed, so the search has no result."""


@dataclass(frozen=True)
class Tools:
    spin: str
    compiler: str


@dataclass(frozen=True)
class Result:
    search: Search
    violated: str | None
    states: int
    depth: int
    seconds: float
    story: tuple[str, ...]

    @property
    def is_as_expected(self) -> bool:
        return self.violated == self.search.violates


def find_tools() -> Tools:
    spin = shutil.which("spin")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    missing = [name for name, path in (("spin", spin), ("a C compiler", compiler)) if path is None]
    if spin is None or compiler is None:
        hint = "On Debian or Ubuntu: apt-get install spin gcc. On macOS: brew install spin."
        raise Unusable(f"not found: {', '.join(missing)}. {hint}")
    return Tools(spin, compiler)


def run(tools: Tools, search: Search, folder: Path) -> Result:
    """Search in `folder`, which must be empty."""
    defines = [f"-D{flag}" for flag in search.flags]
    for part in MODEL.parent.glob("*.pml"):
        shutil.copy(part, folder)
    _call([tools.spin, *defines, "-a", MODEL.name], folder, BUILD_TIMEOUT_SECONDS)
    compile_ = [tools.compiler, *_BUILD[search.method], "-o", "pan", "pan.c"]
    _call(compile_, folder, BUILD_TIMEOUT_SECONDS)
    started = time.monotonic()
    # -E: a process may end anywhere; ALL_ENDS checks that the job ends.
    options = ["-E", f"-m{MAX_DEPTH}", *_RUN[search.method]]
    output = _call([str(folder / "pan"), *options], folder, SEARCH_TIMEOUT_SECONDS)
    seconds = time.monotonic() - started
    violated = _violated(search, output)
    story: tuple[str, ...] = ()
    if violated is not None and (folder / f"{MODEL.name}.trail").exists():
        replay = _call([tools.spin, *defines, "-t", MODEL.name], folder, BUILD_TIMEOUT_SECONDS)
        story = tuple(_STORY.findall(replay))
    return Result(
        search,
        violated,
        states=_number(r"(\d+) states, stored", output),
        depth=_number(r"depth reached (\d+)", output),
        seconds=seconds,
        story=story,
    )


def promises() -> dict[int, str]:
    """The promises of the model by their bit."""
    text = MODEL.with_name("promises.pml").read_text()
    section = text[: text.index("── situations")]
    return {
        int(bit): name for name, bit in re.findall(r"^#define (\w+) (\d+) ", section, re.MULTILINE)
    }


def _violated(search: Search, output: str) -> str | None:
    if "non-progress cycle (at depth" in output:
        return ENDLESS
    found = re.search(r"assertion violated (.*) \(at depth", output)
    if found is None:
        if "errors: 0" not in output or re.search(r"not completed|too small|out of mem", output):
            raise Unusable(f"{search.name}: the search did not finish\n{output}")
        return None
    promise = re.search(r"&(\d+)\)==0", found[1])
    if promise is not None:
        return promises()[int(promise[1])]
    if search.kind is Kind.PROBE and search.flags[1].startswith("PROBE="):
        return search.flags[1].removeprefix("PROBE=")
    raise Unusable(f"{search.name}: {found[0]} is no promise of the model")


def _number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    if found is None:
        raise Unusable(f"cannot read {pattern!r} from what the search said:\n{output}")
    return int(found[1])


def _call(command: list[str], folder: Path, timeout_seconds: float) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{command[0]} took more than {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        raise Unusable(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
