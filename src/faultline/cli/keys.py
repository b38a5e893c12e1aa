"""The commands `keys create`, `list` and `revoke`: keys of the HTTP API."""

from __future__ import annotations

import click

from faultline.cli.context import Context, audited, session
from faultline.cli.output import json_option, print_json, print_table
from faultline.errors import InvalidInput
from faultline.payload import encode_json
from faultline.postgres.sessions import run
from faultline.statements import keys as key_values
from faultline.statements.keys import Scope


@click.group()
def keys() -> None:
    """Create, list and revoke keys of the HTTP API."""


@keys.command()
@click.argument("name")
@click.option(
    "-s",
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    required=True,
    help="What the key may do; repeat the option for more scopes.",
)
@json_option
@click.pass_obj
def create(context: Context, name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Create a key and print it.

    It cannot be printed again: only its hash is stored.
    """
    key_values.check_name(name)
    key = key_values.new_key()
    with session(context) as conn, audited(conn, "create key", f"key flk_{key.prefix}"):
        key_id = run(conn, key_values.create(name, key, map(Scope, scopes)))
    if as_json:
        fields = {"id": key_id, "name": name, "prefix": key.prefix, "scopes": sorted(set(scopes))}
        print_json({**fields, "key": key.text})
        return
    click.echo(key.text)
    click.echo(
        f"Key {key_id} may {', '.join(sorted(set(scopes)))}. It is not shown again: store it now.",
        err=True,
    )


@keys.command("list")
@click.option("--revoked", is_flag=True, help="Also list revoked keys.")
@json_option
@click.pass_obj
def list_keys(context: Context, revoked: bool, as_json: bool) -> None:
    """List keys, newest first.

    Of a key itself only the prefix is known.
    """
    with session(context) as conn:
        found = run(conn, key_values.listed(revoked=revoked))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no keys: faultline keys create NAME --scope enqueue")
        return
    print_table(
        ["id", "name", "key", "scopes", "created", "last used", "revoked"],
        [
            [
                *(str(key.id), key.name, f"flk_{key.prefix}_…", ", ".join(key.scopes)),
                *(
                    "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
                    for moment in (key.created_at, key.last_used_at, key.revoked_at)
                ),
            ]
            for key in found
        ],
    )


@keys.command()
@click.argument("key", metavar="ID|PREFIX")
@json_option
@click.pass_obj
def revoke(context: Context, key: str, as_json: bool) -> None:
    """Revoke a key.

    An API process that has just looked the key up accepts it for --key-cache-seconds more.
    """
    encode_json(key, what="the key")
    with session(context) as conn, audited(conn, "revoke key", f"key {key[:12]}"):
        key_id = run(conn, key_values.id_of(key))
        if key_id is None:
            raise InvalidInput(
                f"there is no key {key[:12]!r}", hint="faultline keys list --revoked"
            )
        was_valid = run(conn, key_values.revoke(key_id))
    if as_json:
        print_json({"id": key_id, "was_valid": was_valid})
    else:
        click.echo(f"key {key_id} {'is revoked' if was_valid else 'had been revoked before'}")
