"""Every block of README and tutorial works as written, from an empty folder."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, missing_lines
from tests.docs.shell import BlockFailed, PageShell

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial.md")


def run_page(shell: PageShell, page: str, *, until: str = "") -> None:
    """Run a page, or its part before the line `until`.

    One at a time on this machine, because pages name fixed ports.
    """
    lines = (ROOT / page).read_text().splitlines()
    end = lines.index(until) if until else len(lines)
    with (Path(tempfile.gettempdir()) / "faultline-pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for block in blocks_of(ROOT / page):
            if block.line < end:
                shell.run(block)


@pytest.mark.timeout(600)
def test_the_first_screen_works_with_this_checkout(first_screen_shell: PageShell) -> None:
    run_page(first_screen_shell, "README.md", until="## The promise, and its limits")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.timeout(1200)
def test_every_block_works_with_this_checkout(checkout_shell: PageShell, page: str) -> None:
    run_page(checkout_shell, page)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.timeout(1800)
def test_every_block_works_with_the_built_distributions(user_shell: PageShell, page: str) -> None:
    run_page(user_shell, page)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_run_has_a_reason(page: str) -> None:
    blocks = blocks_of(ROOT / page)
    known = ("", "output", "runs until it is stopped")
    for block in blocks:
        assert block.comment in known or block.not_run or block.replacement, block.comment
    assert all(len(block.not_run) > 10 for block in blocks if block.not_run)


def block(text: str, comment: str = "") -> Block:
    return Block(line=1, language="", text=text, comment=comment)


def test_a_command_that_fails_is_found(plain_shell: PageShell) -> None:
    with pytest.raises(BlockFailed, match=r"\[false\] ended with 1"):
        plain_shell.run(block("true\nfalse\ntrue\n"))


@pytest.mark.parametrize(
    "commands", ["pip install faultline-queue", "python -m venv .venv", "faultline --version"]
)
def test_what_a_fresh_system_does_not_have_is_found(plain_shell: PageShell, commands: str) -> None:
    """Debian has python3 only, and refuses to install outside of an environment."""
    with pytest.raises(BlockFailed, match="ended with"):
        plain_shell.run(block(f"{commands}\n"))
    plain_shell.run(block("python3 -m venv .venv\n. .venv/bin/activate\npip install x\n"))
    plain_shell.run(block("python -c 'import faultline' && faultline --version\n"))


def test_variables_and_files_stay_from_block_to_block(plain_shell: PageShell) -> None:
    plain_shell.run(block("# a.txt\nhello\n"))
    plain_shell.run(block("name=a.txt\n"))
    plain_shell.run(block("cat $name\n"))
    plain_shell.run(block("hel…\n", "output"))
    with pytest.raises(BlockFailed, match="not printed"):
        plain_shell.run(block("bye\n", "output"))


def test_a_service_that_ends_by_itself_is_found(plain_shell: PageShell) -> None:
    with pytest.raises(BlockFailed):
        plain_shell.run(block("echo hello\n", "runs until it is stopped"))


def test_lines_are_looked_for_in_order() -> None:
    assert missing_lines("b\na\n", "a b") == ["a"]
    assert missing_lines("a … c\n", "a b   c") == []
