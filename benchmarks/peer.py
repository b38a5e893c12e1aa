"""A peer: a queue that is compared with Faultline, described by its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
FAULTLINE, NAIVE, RAW_SQL = "faultline", "naive", "raw_sql"
# Part of this project: Faultline, its worker without the fence, and its SQL in a bare loop.
OWN = (FAULTLINE, NAIVE, RAW_SQL)
_PROGRAMS = {"python": "peer.py", "node": "peer.mjs"}
_SIZES = ("enqueue", "single", "drain", "write")
DEFAULT_CONCURRENCY = 20


class BadPeer(Exception):
    """The folder of a peer breaks the contract in README.md."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    name: str
    title: str
    broker: str
    runtime: str
    python: str | None = None  # ">=3.12", if it needs another Python than Faultline
    packages: tuple[str, ...]
    settings: str
    finished: str | None  # SQL or a Redis command; None: the peer has the role `finished`
    jobs: Mapping[str, int]
    concurrency: Mapping[str, int] = field(default_factory=dict)  # by workload
    cannot: Mapping[str, str] = field(default_factory=dict)  # by workload: the reason
    batches: str | None = None  # what is done or finished together; None: it has no batches
    recovery: str | None = None  # how it notices a dead worker; None: not measured
    folder: Path

    @property
    def is_own(self) -> bool:
        return self.name in OWN

    @property
    def program(self) -> Path:
        return self.folder / _PROGRAMS[self.runtime]

    def concurrency_of(self, workload: str) -> int:
        return self.concurrency.get(workload, DEFAULT_CONCURRENCY)


def peer_names() -> list[str]:
    return sorted(path.parent.name for path in PEERS.glob("*/peer.toml"))


def load_peers(names: Sequence[str]) -> list[Peer]:
    return [load_peer(PEERS / name) for name in names]


def load_peer(folder: Path) -> Peer:
    path = folder / "peer.toml"
    try:
        described: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise BadPeer(f"{folder.name}: {problem}") from None
    try:
        peer = Peer(
            name=folder.name,
            title=described["title"],
            broker=described["broker"],
            runtime=described["runtime"],
            python=described.get("python"),
            packages=tuple(described.get("packages", ())),
            settings=described["settings"],
            finished=described.get("finished"),
            jobs=described["jobs"],
            concurrency=described.get("concurrency", {}),
            cannot=described.get("cannot", {}),
            batches=described.get("batches"),
            recovery=described.get("recovery"),
            folder=folder,
        )
    except KeyError as missing:
        raise BadPeer(f"{folder.name}: peer.toml has no {missing}") from None
    _check(peer)
    return peer


def _check(peer: Peer) -> None:
    if peer.broker not in ("postgresql", "redis"):
        raise BadPeer(f"{peer.name}: broker must be postgresql or redis, not {peer.broker!r}")
    if peer.runtime not in _PROGRAMS:
        raise BadPeer(f"{peer.name}: runtime must be python or node, not {peer.runtime!r}")
    if not peer.program.is_file():
        raise BadPeer(f"{peer.name}: there is no {peer.program.name}")
    if peer.broker == "postgresql" and not peer.finished:
        raise BadPeer(f"{peer.name}: peer.toml must say in `finished` how to count finished jobs")
    if missing := [size for size in _SIZES if size not in peer.jobs and size not in peer.cannot]:
        raise BadPeer(f"{peer.name}: [jobs] has no {' and no '.join(missing)}")
