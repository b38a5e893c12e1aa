"""The commands `limits list`, `show`, `set` and `reset`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

import click

from faultline.cli.completion import complete_limit, queues_of
from faultline.cli.context import Context, audited, session
from faultline.cli.output import duration, json_option, print_json, print_table
from faultline.errors import InvalidInput, UnknownLimit
from faultline.limits import LARGEST_LIMIT, LimitValues, Rate, check_limit_name, operator_values
from faultline.postgres.sessions import Connection, run
from faultline.statements import clock, limit_keys
from faultline.statements import limits as statements
from faultline.statements import queues as queue_statements
from faultline.statements.limits import LimitUse, as_facts
from faultline.suggestions import did_you_mean

_RATE = re.compile(r"([0-9]+)/([0-9]*\.?[0-9]+)?(s|min|h|d)\Z")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@click.group()
def limits() -> None:
    """List, show, set and reset limits of running jobs."""


@limits.command("list")
@json_option
@click.pass_obj
def list_limits(context: Context, as_json: bool) -> None:
    """List all limits, and how many jobs run and wait."""
    with session(context) as conn:
        found = run(conn, statements.uses())
    if as_json:
        print_json([as_facts(use) for use in found])
    elif not found:
        click.echo("no limits")
    else:
        print_table(
            ["limit", "running", "waiting", "rate", "changed by", "changed"],
            [
                [
                    use.name,
                    f"{use.running:,}" if use.max_running is None else _of_max(use),
                    f"{use.waiting:,}",
                    _rate_in_words(use),
                    use.changed_by,
                    f"{use.changed_at:%Y-%m-%d %H:%M:%S %Z}",
                ]
                for use in found
            ],
        )


def _of_max(use: LimitUse) -> str:
    """`2 of 3`; a limit with keys has as many places for each of them."""
    if use.name.startswith("key:"):
        return f"{use.running:,}, {use.max_running:,} a key"
    return f"{use.running:,} of {use.max_running:,}"


def _rate_in_words(use: LimitUse) -> str:
    if use.rate_jobs is None or use.rate_seconds is None:
        return ""
    return f"{use.rate_jobs:,} in {duration(use.rate_seconds)}, burst {use.burst:,}"


@limits.command()
@click.argument("name", shell_complete=complete_limit)
@json_option
@click.pass_obj
def show(context: Context, name: str, as_json: bool) -> None:
    """Show the limit NAME, its tasks and its fullest keys."""
    with session(context) as conn:
        use = _find(conn, name)
        arguments = run(conn, limit_keys.bound_arguments(name))
        keys = run(conn, limit_keys.fullest_keys(name))
        now = run(conn, clock.database_time())
    if as_json:
        print_json({**as_facts(use), "arguments": arguments, "keys": keys})
        return
    click.echo(f"{use.name}: {_values(use)}")
    source = "declared in code" if use.is_declared else "not declared in code"
    click.echo(f"changed by {use.changed_by} at {use.changed_at:%Y-%m-%d %H:%M:%S %Z}; {source}")
    click.echo(f"{use.running:,} running, {use.waiting:,} waiting")
    for bound in arguments:
        default = "" if bound.fallback is None else f", {bound.fallback} without it"
        click.echo(f"key of task {bound.task}: its argument {bound.argument}{default}")
    if keys:
        click.echo()
        print_table(
            ["key", "running", "waiting", "oldest", "next start"],
            [
                [
                    key.limit_key.partition("=")[2] or key.limit_key,
                    f"{key.running:,}",
                    f"{key.waiting:,}",
                    "" if key.waits_since is None else duration(_age(now, key.waits_since)),
                    ""
                    if key.next_start_at is None
                    else f"in {duration(_age(key.next_start_at, now))}",
                ]
                for key in keys
            ],
        )


def _age(later: datetime, earlier: datetime) -> float:
    return max(0.0, float((later - earlier).total_seconds()))


def _values(use: LimitUse) -> LimitValues:
    return LimitValues(use.max_running, use.rate_jobs, use.rate_seconds, use.burst)


@limits.command("set")
@click.argument("name", shell_complete=complete_limit)
@click.option(
    "--running",
    type=click.IntRange(0, LARGEST_LIMIT),
    help="How many jobs run at once, in all workers together; 0 starts none.",
)
@click.option("--rate", metavar="JOBS/PERIOD", help="How many start in a period: 10/1s, 100/5min.")
@click.option(
    "--burst", type=click.IntRange(1, LARGEST_LIMIT), help="How many of them at once. Default: 1."
)
@click.option("--task", help="A task under this limit, for a limit key:NAME.")
@click.option("--argument", help="The argument of that task whose value is the key.")
@click.option("--force", is_flag=True, help="Limit a queue that has no job, worker or task yet.")
@json_option
@click.pass_obj
def set_limit(
    context: Context,
    name: str,
    running: int | None,
    rate: str | None,
    burst: int | None,
    task: str | None,
    argument: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Set the limit NAME, at once and for all workers.

    NAME is queue:QUEUE, task:TASK or key:NAME. The options are the whole limit: a value that is not given is
    removed. The values stay, also if the code declares others, until `faultline limits reset NAME`.
    """
    wanted = _limit_of(name, running, rate, burst)
    if (task is None) != (argument is None):
        raise InvalidInput("--task and --argument belong together", hint="give both")
    with session(context) as conn, audited(conn, "set limit", f"limit {name}"):
        if not force:
            _require_known(context, conn, name, is_bound=task is not None)
        run(conn, statements.set_limit(name, **wanted._asdict(), task=task, argument=argument))
        use = _find(conn, name)
    if as_json:
        print_json(as_facts(use))
    else:
        click.echo(f"{name}: {_values(use)}; {use.waiting:,} waiting")


def _limit_of(name: str, running: int | None, rate: str | None, burst: int | None) -> LimitValues:
    check_limit_name(name)
    if running is None and rate is None:
        raise InvalidInput("a limit needs --running, --rate or both", hint="--running 3")
    if burst is not None and rate is None:
        raise InvalidInput("--burst belongs to a rate", hint="--rate 10/1s --burst 3")
    return operator_values(name, running, None if rate is None else _rate_of(rate, burst or 1))


def _rate_of(text: str, burst: int) -> Rate:
    found = _RATE.match(text)
    if found is None:
        raise InvalidInput(f"{text!r} is not a rate", hint="10/1s, 100/5min, 1000/1h or 5000/1d")
    jobs, number, unit = found.groups()
    return Rate(int(jobs), per=float(number or 1) * _SECONDS[unit], burst=burst)


def _find(conn: Connection, name: str) -> LimitUse:
    uses = {use.name: use for use in run(conn, statements.uses())}
    if name not in uses:
        raise _unknown(name, uses)
    return uses[name]


def _unknown(name: str, known: Iterable[str]) -> UnknownLimit:
    question = did_you_mean(name, known)
    return UnknownLimit(
        f"there is no limit {name!r}", hint=question or "list the limits: faultline limits list"
    )


def _require_known(context: Context, conn: Connection, name: str, *, is_bound: bool) -> None:
    """Refuse a new limit whose queue, task or key is probably mistyped."""
    uses = [use.name for use in run(conn, statements.uses())]
    if name in uses:
        return
    kind, _, rest = name.partition(":")
    if kind == "queue" and not run(conn, queue_statements.is_used(rest)):
        known = {each.queue for each in run(conn, queue_statements.queues(exact_up_to=1))}
        if context.app_path is not None:
            known |= queues_of(context.app)
        if rest not in known:
            question = did_you_mean(rest, sorted(known)) or ""
            anyway = "--force limits it before its first job"
            raise InvalidInput(f"there is no queue {rest!r}", hint=f"{question} {anyway}".strip())
    elif kind == "task" and context.app_path is not None:
        context.app.import_tasks()
        if rest not in context.app.tasks:
            question = did_you_mean(rest, sorted(context.app.tasks)) or "--force limits it anyway"
            raise InvalidInput(f"the application has no task {rest!r}", hint=question)
    elif kind == "key" and not is_bound:
        question = did_you_mean(name, uses) or "name a task and its argument: --task T --argument A"
        raise InvalidInput(f"no task has the limit {name!r}", hint=question)


@limits.command()
@click.argument("name", shell_complete=complete_limit)
@json_option
@click.pass_obj
def reset(context: Context, name: str, as_json: bool) -> None:
    """Return NAME to the values of the code, or remove it.

    A limit that no code declares is removed, and its waiting jobs become due.
    """
    with session(context) as conn, audited(conn, "reset limit", f"limit {name}"):
        _find(conn, name)
        result = run(conn, statements.reset(name))
        use = _find(conn, name) if result == "declared" else None
    if as_json:
        print_json(
            {"name": name, "result": result, "limit": None if use is None else as_facts(use)}
        )
    elif use is None:
        click.echo(f"{name} is removed")
    else:
        click.echo(f"{name} is as declared: {_values(use)}")
