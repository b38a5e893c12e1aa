"""Measures what each adapter costs for jobs with one write each.

    python -m benchmarks.adapter_cost [--jobs 2000] [--rounds 5] [--markdown FILE]

Plain psycopg is the measure. Each variant drains the same number of jobs with a worker of its own, in turn
and repeatedly, on an embedded PostgreSQL. `def` handlers are compared with psycopg in `def` handlers,
`async def` ones with psycopg in `async def` ones. The ratios are medians over the rounds, each of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import django
import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from benchmarks.table_file import write_table
from faultline import Faultline, Job, embedded
from faultline.postgres.migrate import migrate

CONCURRENCY = 10
_INSERT = "INSERT INTO effects (job) VALUES "


@dataclass(frozen=True)
class Variant:
    name: str
    against: str  # the variant that it is compared with
    register: Callable[[Faultline], Any]  # defines the task `write`
    open: Callable[[str], Faultline] = Faultline  # the application on a database


def psycopg_plain(app: Faultline) -> Any:
    @app.task(name="write")
    def write(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute(f"{_INSERT}(%s)", [job.id])

    return write


def psycopg_async(app: Faultline) -> Any:
    @app.task(name="write")
    async def write(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute(f"{_INSERT}(%s)", [job.id])

    return write


def alchemy_plain(app: Faultline) -> Any:
    engine = create_engine(_dialect(app, "psycopg"), pool_size=CONCURRENCY)
    sessions = sessionmaker(engine)
    app.on_shutdown(engine.dispose)

    @app.task(name="write")
    def write(job: Job) -> None:
        with job.session(sessions) as session:
            session.execute(text(f"{_INSERT}(:job)"), {"job": job.id})

    return write


def alchemy_async(driver: str) -> Callable[[Faultline], Any]:
    def register(app: Faultline) -> Any:
        engine = create_async_engine(_dialect(app, driver), pool_size=CONCURRENCY)
        sessions = async_sessionmaker(engine)
        app.on_shutdown(engine.dispose)

        @app.task(name="write")
        async def write(job: Job) -> None:
            async with job.session(sessions) as session:
                await session.execute(text(f"{_INSERT}(:job)"), {"job": job.id})

        return write

    return register


def asyncpg_pool(app: Faultline) -> Any:
    @app.on_startup
    async def open_pool() -> None:
        app.state.pool = await asyncpg.create_pool(app.database_url, max_size=CONCURRENCY)

    @app.on_shutdown
    async def close_pool() -> None:
        await app.state.pool.close()

    @app.task(name="write")
    async def write(job: Job) -> None:
        async with job.transaction(app.state.pool) as tx:
            await tx.execute(f"{_INSERT}($1)", job.id)

    return write


def django_app(max_age: int | None) -> Callable[[str], Faultline]:
    def open_on(url: str) -> Faultline:
        configure_django(url)
        from django.db import connections

        from faultline.adapters.django import DjangoFaultline

        connections.settings["default"]["CONN_MAX_AGE"] = max_age
        return DjangoFaultline("default")

    return open_on


def configure_django(url: str) -> None:
    """Configure Django, at the first call; all calls are for one database."""
    from django.conf import settings

    if settings.configured:
        return
    parts = conninfo_to_dict(url)
    names = {
        "NAME": "dbname",
        "USER": "user",
        "PASSWORD": "password",
        "HOST": "host",
        "PORT": "port",
    }
    database = {name: parts.get(key, "") for name, key in names.items()}
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}},
        INSTALLED_APPS=["faultline.adapters.django"],
        USE_TZ=True,
    )
    django.setup()


def django_orm(app: Faultline) -> Any:
    from benchmarks.django_effect import Effect

    @app.task(name="write")
    def write(job: Job) -> None:
        with job.atomic():
            Effect.objects.create(job=job.id)

    return write


VARIANTS = (
    Variant("psycopg, def", "psycopg, def", psycopg_plain),
    Variant("SQLAlchemy Session, psycopg", "psycopg, def", alchemy_plain),
    Variant("Django's ORM, connections kept", "psycopg, def", django_orm, django_app(None)),
    Variant("Django's ORM, CONN_MAX_AGE = 0", "psycopg, def", django_orm, django_app(0)),
    Variant("psycopg, async def", "psycopg, async def", psycopg_async),
    Variant("SQLAlchemy AsyncSession, psycopg", "psycopg, async def", alchemy_async("psycopg")),
    Variant("SQLAlchemy AsyncSession, asyncpg", "psycopg, async def", alchemy_async("asyncpg")),
    Variant("asyncpg pool", "psycopg, async def", asyncpg_pool),
)


def _dialect(app: Faultline, driver: str) -> str:
    return app.database_url.replace("postgresql://", f"postgresql+{driver}://")


def measure(url: str, variant: Variant, count: int) -> tuple[float, float]:
    """Return jobs per second, and the worker's processor time per job in microseconds."""
    app = variant.open(url)
    task = variant.register(app)
    task.enqueue_many([{}] * count)
    began, used = time.perf_counter(), time.process_time()
    app.run_worker(concurrency=CONCURRENCY, max_jobs=count, reconciler=False)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    asyncio.run(app.aclose())
    with psycopg.connect(url) as conn:
        [(done,)] = conn.execute("SELECT count(*) FROM effects").fetchall()
        conn.execute("TRUNCATE effects")
    if done != count:
        raise SystemExit(f"{variant.name}: {done} effects of {count} jobs")
    return count / seconds, processor / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {variant.name: [] for variant in VARIANTS}
    times: dict[str, list[float]] = {variant.name: [] for variant in VARIANTS}
    with embedded.temporary_server() as server:
        migrate(server.url)
        with psycopg.connect(server.url) as conn:
            conn.execute("CREATE TABLE effects (job uuid)")
        for number in range(options.rounds):
            for variant in VARIANTS:
                rate, processor = measure(server.url, variant, options.jobs)
                rates[variant.name].append(rate)
                times[variant.name].append(processor)
            print(f"round {number + 1} of {options.rounds}", flush=True)
    titles = ("handler's library", "jobs/s", "of psycopg's rate", "worker's CPU µs per job")
    lines = [f"| {' | '.join(titles)} |"]
    for variant in VARIANTS:
        mine, theirs = rates[variant.name], rates[variant.against]
        ratios = sorted(a / b for a, b in zip(mine, theirs, strict=True))
        lines.append(
            f"| {variant.name} | {statistics.median(mine):,.0f} | {statistics.median(ratios):.2f}"
            f" ({ratios[0]:.2f}–{ratios[-1]:.2f}) | {statistics.median(times[variant.name]):,.0f} |"
        )
    print("\n".join(lines))
    if options.markdown is not None:
        write_table(options.markdown, "Adapters", lines)


if __name__ == "__main__":
    main()
