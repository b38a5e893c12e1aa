"""The inspector serves the summaries in its reports folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.inspector.read_endpoints import LARGEST_REPORT_BYTES, read_reports


def test_summaries_are_served_as_they_were_written(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "benchmark_summary.json").write_text('{"faultline_duplicates": 0}')
    (tmp_path / "performance.json").write_text('{"targets": []}')
    (tmp_path / "secrets.json").write_text('{"not": "served"}')
    app = make_app(InspectorSettings(database_url=database_url, reports=tmp_path))
    with TestClient(app, base_url="http://localhost") as client:
        found = client.get("/api/reports").raise_for_status().json()["reports"]

    assert [report["name"] for report in found] == ["benchmark_summary", "performance"]
    assert found[0]["summary"] == {"faultline_duplicates": 0}


@pytest.mark.parametrize("text", [None, "{half", "x" * (LARGEST_REPORT_BYTES + 1)])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "performance.json").write_text(text)

    assert read_reports(tmp_path) == []
