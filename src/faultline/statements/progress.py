"""Progress that handlers report: the write, and the column that readers select."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from faultline.model import Claim, ReportedProgress
from faultline.statements.statement import Statement

# The progress of `faultline.jobs AS j` as JSON. NULL if its current token has not reported, and for a
# succeeded job, whose last report may never have been sent.
PROGRESS_COLUMN: LiteralString = """
    (SELECT json_build_object('fraction', p.fraction, 'message', p.message, 'reported_at', p.reported_at)
     FROM faultline.job_progress AS p WHERE p.job_id = j.id
       AND p.fencing_token = j.fencing_token AND j.state <> 'succeeded') AS progress"""


class ProgressReport(NamedTuple):
    claim: Claim
    fraction: float
    message: str | None
    rounds: int = 0  # how often it was sent in vain


def report_progress(reports: Sequence[ProgressReport]) -> Statement[set[str]]:
    """Record reports; returns the jobs whose reports were recorded.

    It leaves out a report without a valid lease, and one whose job is locked at the moment.
    """
    return Statement(
        """
        SELECT job_id FROM faultline.report_progress(
            %s::uuid[], %s::bigint[], %s::uuid[], %s::real[], %s::text[])
        """,
        (
            [report.claim.id for report in reports],
            [report.claim.fencing_token for report in reports],
            [report.claim.lease for report in reports],
            [report.fraction for report in reports],
            [report.message for report in reports],
        ),
        lambda rows: {str(job_id) for (job_id,) in rows},
    )


def read_progress(value: dict[str, Any] | None) -> ReportedProgress | None:
    """The value of PROGRESS_COLUMN."""
    if value is None:
        return None
    reported_at = datetime.fromisoformat(value["reported_at"])
    return ReportedProgress(value["fraction"], value["message"], reported_at)
