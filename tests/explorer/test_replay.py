"""A violation is printed, drawn and saved, and can be replayed from its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from faultline.cli.context import Context
from faultline.errors import InvalidInput
from faultline.events import log
from faultline_drills.cli.explore import explore as explore_command
from faultline_drills.cli.replay import replay as replay_command
from faultline_drills.explorer import explore
from faultline_drills.explorer.explorer import Counterexample
from faultline_drills.explorer.interleaving_diagram import draw_interleaving
from faultline_drills.explorer.replay_file import load, replay_interleaving, save
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install


@pytest.fixture(scope="module")
def naive_url(server_url: str) -> Iterator[str]:
    with scratch_database(server_url) as url:
        install(Subject.NAIVE, url)
        yield url


@pytest.fixture(scope="module")
def found(naive_url: str) -> Counterexample:
    report = explore(naive_url, ["late-commit"], max_preemptions=2, max_interleavings=60)
    assert report.counterexample is not None
    return report.counterexample


@pytest.fixture
def file(found: Counterexample, tmp_path: Path) -> Path:
    path = tmp_path / "replays" / "late-commit.json"
    save(found, path, subject="naive", server_version="18")
    return path


def test_a_violation_is_recorded_step_by_step(found: Counterexample) -> None:
    steps = found.execution.record.steps
    assert found.execution.record.preemptions == 0  # each actor runs until it waits
    acted = [
        step.actor for step in steps if step.action != "continues" and step.actor != "finisher"
    ]
    assert acted == list(found.interleaving)
    assert steps[-1].jobs.endswith("2 effects)")


def test_a_replay_does_the_same_steps_and_breaks_the_same_rules(
    naive_url: str, found: Counterexample, file: Path
) -> None:
    replayed = replay_interleaving(naive_url, load(file))
    assert replayed.is_reproduced
    assert replayed.execution.record.steps == found.execution.record.steps
    assert replayed.execution.broken_rules == found.execution.broken_rules


def test_a_replay_on_a_queue_with_its_fence_breaks_nothing(database_url: str, file: Path) -> None:
    replayed = replay_interleaving(database_url, load(file))
    assert not replayed.is_reproduced
    assert replayed.execution.findings == ()


def test_the_file_holds_history_rules_and_versions(found: Counterexample, file: Path) -> None:
    facts = json.loads(file.read_text())
    assert facts["interleaving"] == list(found.interleaving)
    assert facts["versions"].keys() == {"faultline", "commit", "postgresql", "python", "psycopg"}
    assert len(facts["history"]) == len(found.execution.history.entries)
    assert "at_most_one_effect" in facts["rules"]


@pytest.mark.parametrize("text", ["", "{}", '{"program": 1}', "[]"])
def test_a_file_that_is_no_replay_is_rejected_with_a_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="is not a replay"):
        load(path)


def test_the_picture_has_every_actor_and_every_step(found: Counterexample) -> None:
    steps = found.execution.record.steps
    picture = ElementTree.fromstring(  # noqa: S314
        draw_interleaving(steps, title="a <title>", violation="a & b")
    )
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {step.actor for step in steps} <= set(texts)
    assert sum(text.split(". ")[0].isdigit() for text in texts) == len(steps)


# ── the commands ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def context(server_url: str, monkeypatch: pytest.MonkeyPatch) -> Context:
    # Restored after the test: the commands redirect the log for the rest of the process.
    monkeypatch.setattr(log, "_logger", None)
    return Context(app_path=None, given_url=server_url, log_format="auto", verbose=False)


def test_the_command_shows_saves_and_replays_a_violation(context: Context, tmp_path: Path) -> None:
    arguments = ["--subject", "naive", "--program", "late-commit", "--save-to", str(tmp_path)]
    ran = CliRunner().invoke(explore_command, arguments, obj=context)
    assert ran.exit_code == 1, ran.output
    assert "at most one effect" in ran.output
    saved = tmp_path / "naive-late-commit.json"
    assert saved.with_suffix(".svg").read_text().startswith("<svg")

    again = CliRunner().invoke(replay_command, [str(saved), "--json"], obj=context)
    assert again.exit_code == 1, again.output
    assert json.loads(again.stdout)["reproduced"] is True
    assert json.loads(again.stdout)["same_steps"] is True


@pytest.mark.slow
def test_the_command_reports_what_was_explored_when_all_rules_hold(
    context: Context, tmp_path: Path
) -> None:
    page = tmp_path / "explored.md"
    arguments = ["--program", "takeover", "--bound", "1", "--interleavings", "30", "--json"]
    arguments += ["--markdown", str(page), "--save-to", str(tmp_path / "violations")]
    ran = CliRunner().invoke(explore_command, arguments, obj=context)
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    assert facts["verdict"] == "valid"
    (program,) = facts["programs"]
    assert program["distinct"] == 30
    assert min(program["takeovers"], program["stale_rejections"], program["lock_waits"]) > 0
    assert list(tmp_path.iterdir()) == [page]
    assert "**30 different interleavings of 1 program: valid.**" in page.read_text()
    [row] = [line for line in page.read_text().splitlines() if line.startswith("| takeover |")]
    assert f"| 30 | {program['complete_bound']} | {program['commits']} | valid |" in row


def test_the_command_exits_with_2_when_the_needed_events_did_not_happen(context: Context) -> None:
    arguments = ["--program", "three-claimants", "--bound", "0", "--interleavings", "2"]
    ran = CliRunner().invoke(explore_command, arguments, obj=context)
    assert ran.exit_code == 2, ran.output
    assert "the run shows nothing" in ran.output
