"""The order of a run: every test once, slow ones first in each process's share."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.order import FILES, FOLDERS, dealt, rank

SLOW, QUICK = "tests/drills/test_scenarios.py", "tests/public_api/test_app.py"


@given(st.lists(st.sampled_from([SLOW, QUICK, f"tests/{FILES[0]}"])), st.integers(2, 8))
def test_every_test_is_run_once(paths: list[str], processes: int) -> None:
    assert sorted(dealt(paths, processes)) == list(range(len(paths)))


def test_each_process_begins_with_its_part_of_the_slow_tests() -> None:
    paths = [QUICK] * 10 + [SLOW] * 6 + [QUICK] * 2
    kinds = [paths[index] == SLOW for index in dealt(paths, 3)]
    assert kinds == [True, True, False, False, False, False] * 3


def test_every_listed_path_exists() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in FILES if not (tests / name).is_file()] == []
    assert [name for name in FOLDERS if not (tests / name).is_dir()] == []


def test_a_file_that_is_listed_comes_before_its_folder() -> None:
    assert rank(f"tests/{FILES[0]}") == 0
    assert rank(f"tests/{FOLDERS[0]}/test_any.py") == len(FILES)
    assert rank(QUICK) is None
