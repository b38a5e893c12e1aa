"""Builds both distributions, and checks what would be uploaded."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from release import content, installation
from release.building import Distribution, ReleaseProblem, build, make_tools, run


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="faultline-release-") as folder:
        workspace = Path(folder)
        workspace.chmod(0o755)  # root starts the embedded server as another account
        try:
            check(workspace)
        except ReleaseProblem as problem:
            print(f"failed: {problem}", file=sys.stderr)
            return 1
    print("Both distributions may be uploaded.")
    return 0


def check(workspace: Path) -> None:
    tools = make_tools(workspace / "tools")
    distributions: list[Distribution] = []
    _step("build", lambda: distributions.extend(build(tools, workspace / "dist")))
    files = [file for found in distributions for file in (found.sdist, found.wheel)]
    _step("twine check", lambda: run(tools / "twine", "check", "--strict", *files, cwd=workspace))
    for distribution in distributions:
        _step(f"content of {distribution.name}", _content_check(distribution))
        _step(f"links of {distribution.name}", _link_check(distribution, tools))
    for name, installed_check in installation.checks(distributions, workspace):
        _step(name, installed_check)


def _content_check(distribution: Distribution) -> Callable[[], None]:
    def check_content() -> None:
        if problems := content.problems_of(distribution):
            raise ReleaseProblem("\n".join(problems))

    return check_content


def _link_check(distribution: Distribution, tools: Path) -> Callable[[], None]:
    def check_links() -> None:
        program = Path(__file__).with_name("rendered_links.py")
        found = run(tools / "python", program, distribution.wheel, cwd=tools).split()
        if found:
            raise ReleaseProblem(f"relative links on the index page: {', '.join(found)}")

    return check_links


def _step(name: str, action: Callable[[], object]) -> None:
    started = time.monotonic()
    action()
    print(f"ok  {name} ({time.monotonic() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
