"""Commands that look: `status`, `quarantine groups|show`, and `maintain optimize`, which changes no row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lazaretto.cli.arguments import known, moment
from lazaretto.cli.context import Context
from lazaretto.errors import ConfigurationError

quarantine = typer.Typer(help="What is held, and why.", no_args_is_help=True)
maintain = typer.Typer(help="Keep the tables quick.", no_args_is_help=True)

_Dataset = Annotated[str | None, typer.Argument(help="One dataset; all of them without it.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command()(status)
    app.add_typer(quarantine, name="quarantine")
    app.add_typer(maintain, name="maintain")


def status(
    ctx: typer.Context,
    dataset: _Dataset = None,
    limit: Annotated[int, typer.Option(help="At most so many batches.")] = 20,
) -> None:
    """What became of the batches, newest first: the ledger."""
    from lazaretto.cli.shown import entry_as_dict, print_status
    from lazaretto.observe.status import batch_status

    context: Context = ctx.obj
    tables, chosen = context.tables, known(context, dataset)
    entries = batch_status(context.spark(), tables, chosen, limit)
    if context.json:
        context.emit({"batches": [entry_as_dict(entry) for entry in entries]})
    else:
        print_status(context.console, entries)


@quarantine.command()
def groups(
    ctx: typer.Context,
    dataset: _Dataset = None,
    code: Annotated[str | None, typer.Option(help="Only this record code or rule id.")] = None,
    since: Annotated[str | None, typer.Option(metavar="ISO", help="Only what is held since then.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many groups.")] = 50,
) -> None:
    """Why records are held, most records first."""
    from lazaretto.cli import shown
    from lazaretto.observe import held

    context: Context = ctx.obj
    at = moment(since, "--since") if since is not None else None
    tables, chosen = context.tables, known(context, dataset)
    found = held.groups(context.spark(), tables, chosen, code, at, limit=limit)
    if context.json:
        context.emit({"groups": [shown.group_as_dict(group) for group in found]})
    else:
        shown.print_groups(context.console, found, more=len(found) == limit)


@quarantine.command()
def show(
    ctx: typer.Context,
    quarantine_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", show_default=False, help="A quarantine_id, or its first 8 or more digits."),
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="KEY", help="A group, as `quarantine groups` names it.")] = None,
    coordinate: Annotated[
        str | None, typer.Option(metavar="SYSTEM/STREAM/PARTITION/POSITION", help="Where the record came from.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many records.")] = 5,
    payload: Annotated[bool, typer.Option("--payload", help="Show what was sent, too.")] = False,
) -> None:
    """Held records in full: one by its id or coordinate, or the first of a group."""
    from lazaretto.cli import shown
    from lazaretto.observe import held

    context: Context = ctx.obj
    tables = context.tables
    found = held.show(
        context.spark(),
        tables,
        quarantine_id=quarantine_id,
        coordinate=coordinate,
        group_key=group,
        limit=limit,
        payload=payload,
    )
    if not found:
        raise ConfigurationError(
            "no such record is held",
            where=str(context.tables.quarantine),
            remedy="look at `lazaretto quarantine groups`",
        )
    if context.json:
        context.emit({"records": [shown.held_as_dict(record, payload=payload) for record in found]})
    else:
        shown.print_held(context.console, found, payload=payload)


@maintain.command()
def optimize(ctx: typer.Context, dataset: _Dataset = None) -> None:
    """Write many small files as few; no row changes, no old version is lost."""
    from lazaretto.cli.shown import print_optimized
    from lazaretto.observe import maintenance

    context: Context = ctx.obj
    chosen = known(context, dataset)
    results = maintenance.optimize(context.spark(), context.tables, chosen, datasets=context.settings.datasets)
    if context.json:
        context.emit({"tables": [asdict(result) for result in results]})
    else:
        print_optimized(context.console, results)
