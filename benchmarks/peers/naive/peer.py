"""Faultline's worker on tables without the fence, to measure the fence's cost."""

import runpy
import sys
from pathlib import Path

from faultline_drills.subjects import Subject, install

PEERS = Path(__file__).parents[1]
sys.path.append(str(PEERS))
import roles  # noqa: E402


def prepare(url: str) -> None:
    install(Subject.NAIVE, url)


if __name__ == "__main__":
    peer = runpy.run_path(str(PEERS / "faultline" / "peer.py"))
    roles.main(prepare=prepare, enqueue=peer["enqueue"], work=peer["work"])
