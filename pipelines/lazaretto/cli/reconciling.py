"""`reconcile`: does what was sent equal what is accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lazaretto.cli.arguments import known, moment
from lazaretto.cli.context import Context
from lazaretto.errors import ConfigurationError, FinishedWithFailuresError

if TYPE_CHECKING:
    from lazaretto.observe import Difference, PlaceCounts, Reconciliation

_ROWS = 40
_NAMED = 20


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command()(reconcile)


def reconcile(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(help="A dataset of the configuration.", show_default=False)],
    since: Annotated[
        str | None, typer.Option("--from", metavar="ISO", help="Only batches published then or later.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="ISO", help="Only batches published before.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="How many records to compare by hash; 0 for all.")] = 100,
    manifest: Annotated[
        list[Path] | None, typer.Option(help="Compare this manifest's files, too; may be given several times.")
    ] = None,
) -> None:
    """Read the source once more and compare it with ledger, bronze and quarantine. Nothing is changed."""
    from lazaretto.cli.progress import Progress
    from lazaretto.jobs.reconcile import reconcile as run

    context: Context = ctx.obj
    known(context, dataset)
    first = moment(since, "--from") if since is not None else None
    after = moment(until, "--to") if until is not None else None
    if first is not None and after is not None and first >= after:
        raise ConfigurationError("--from is not before --to", remedy="give two times with something between them")
    with Progress(context) as progress:
        progress.say("starting Spark")
        result = run(
            context.spark(), context.settings, dataset,
            since=first, until=after, manifests=manifest or (), sample=sample, say=progress.say,
        )  # fmt: skip
    print_reconciliation(context, result)
    document = as_dict(result)
    if not result.ok:
        raise FinishedWithFailuresError(
            _told(result), where=f"dataset {dataset}", remedy="docs/reconcile.md says what each means", report=document
        )
    context.emit(document)


def as_dict(result: Reconciliation) -> dict[str, Any]:
    """JSON-able: `ranges` has one entry a source partition, `differences` one a difference."""
    return {
        "dataset": result.dataset,
        "batches": result.batches,
        "given_up": result.given_up,
        "ranges": [_place_as_dict(each) for each in result.places],
        "hashes_compared": result.hashes,
        "differences": [_difference_as_dict(each) for each in result.differences],
        "ok": result.ok,
    }


def print_reconciliation(context: Context, result: Reconciliation) -> None:
    """A table with one line a source partition, those with differences first; then the differences."""
    from rich.table import Table
    from rich.text import Text

    from lazaretto.observe import printable

    out = context.console
    noun = "batch" if result.batches == 1 else "batches"
    out.print(f"{result.dataset}: {result.batches:,} committed {noun}, {result.hashes:,} records compared by hash")
    if result.given_up:
        out.print(f"{result.given_up:,} more are left out: a table has lost their rows, and that was accepted")
    table = Table()
    table.add_column("partition", overflow="fold")
    for heading in ("in the source", "in the ledger", "bronze", "quarantine", "duplicate", "filtered", "difference"):
        table.add_column(heading, justify="right")
    not_read = any(each.not_read for each in result.places)
    if not_read:
        table.add_column("not read")
    order = sorted(result.places, key=lambda each: (not each.differing, not each.not_read, each.place))
    for each in order[:_ROWS]:
        numbers = (each.source, each.ledger, each.bronze, each.quarantine, each.duplicate, each.filtered)
        cells = ["-" if n is None else f"{n:,}" for n in numbers]
        cells.append(f"{each.differing:,}" if each.differing else "")
        if not_read:
            cells.append(f"{each.not_read:,} {each.standing.value}" if each.not_read else "")
        style = "red" if each.differing else "yellow" if each.not_read else ""
        table.add_row(Text(printable(str(each.place))), *cells, style=style)
    if result.places:
        out.print(table)
    if len(order) > _ROWS:
        out.print(f"and {len(order) - _ROWS:,} more partitions: --json has them all")
    for difference in result.differences[:_NAMED]:
        out.print(Text(printable(_line(difference), keep="\\")), soft_wrap=True)
    if len(result.differences) > _NAMED:
        out.print(f"and {len(result.differences) - _NAMED:,} more differences: --json has them all")
    if result.ok:
        out.print("[green]no difference[/]" if result.places else "nothing to compare")


def _line(difference: Difference) -> str:
    from lazaretto.observe.differences import MEANING

    parts = [f"{difference.kind.value}: {MEANING[difference.kind]}"]
    if difference.expected is not None:
        parts.append(f"{difference.expected:,} expected, {difference.found:,} found")
    else:
        parts.append(f"{difference.records:,} record{'' if difference.records == 1 else 's'}")
    if difference.batch_id is not None:
        parts.append(f"batch {difference.batch_id}")
    if difference.place is not None:
        parts.append(str(difference.place))
    if difference.positions:
        more = ", ..." if difference.records > len(difference.positions) else ""
        parts.append(f"at {', '.join(map(str, difference.positions))}{more}")
    return "; ".join(parts)


def _told(result: Reconciliation) -> str:
    """How many and where, in one line."""
    kinds = Counter(difference.kind.value for difference in result.differences)
    number = len(result.differences)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    batches = sorted({d.batch_id for d in result.differences if d.batch_id is not None})
    places = sorted({str(d.place) for d in result.differences if d.place is not None})
    where = [_some("batch", batches), _some("at", places)]
    return f"{number} difference{'' if number == 1 else 's'} ({told}) {' '.join(filter(None, where))}".rstrip()


def _some(word: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{word} {names[0]}{more}"


def _place_as_dict(each: PlaceCounts) -> dict[str, Any]:
    values = {name: value for name, value in vars(each).items() if name not in ("place", "differing", "standing")}
    return {**each.place._asdict(), **values, "difference": each.differing, "standing": each.standing.value}


def _difference_as_dict(each: Difference) -> dict[str, Any]:
    from lazaretto.observe.differences import MEANING

    place = each.place._asdict() if each.place else dict.fromkeys(("system", "stream", "partition"))
    return {
        "kind": each.kind.value, "meaning": MEANING[each.kind], "batch_id": each.batch_id, **place,
        "positions": list(each.positions), "records": each.records, "expected": each.expected, "found": each.found,
    }  # fmt: skip
