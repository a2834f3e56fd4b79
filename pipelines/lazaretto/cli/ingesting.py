"""The commands that move data: stream, batch, demo; and check, which moves none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from lazaretto.cli.context import Context
from lazaretto.cli.progress import Progress
from lazaretto.errors import ConfigurationError

_INTERVAL = re.compile(r"^(\d+)\s*(ms|s|m|h)$")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

_Dataset = Annotated[str, typer.Argument(help="A dataset of the configuration.", show_default=False)]
_Accept = Annotated[str | None, typer.Option(metavar="BATCH_ID", help="Let this rejected batch through, once.")]
_Reason = Annotated[str | None, typer.Option(help="Why; goes to the audit.")]
_Gap = Annotated[
    str | None, typer.Option(metavar="REASON", help="Go on without records that are gone; audit and ledger say so.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(stream)
    app.command()(batch)
    app.command()(check)
    app.command()(demo)


def stream(
    ctx: typer.Context,
    dataset: _Dataset,
    available_now: Annotated[bool, typer.Option(help="Take what is there, then end.")] = False,
    trigger: Annotated[str, typer.Option(help="Time between micro-batches, such as 10s, 500ms or 1m.")] = "10s",
    accept_batch: _Accept = None,
    reason: _Reason = None,
    restart_from_ledger: Annotated[
        bool, typer.Option("--restart-from-ledger", help="Begin a new checkpoint where the ledger ends.")
    ] = False,
    accept_gap: _Gap = None,
) -> None:
    """Run a dataset's stream: Kafka topic or landing folder, micro-batch by micro-batch. SIGTERM ends it cleanly."""
    from lazaretto.jobs.dataset import open_dataset
    from lazaretto.jobs.restart import Restart
    from lazaretto.jobs.stream import run_stream

    context: Context = ctx.obj
    restart = Restart(accept_gap) if restart_from_ledger or accept_gap is not None else None
    when = {"availableNow": True} if available_now else {"processingTime": _interval(trigger)}
    opened = open_dataset(context.settings, dataset)
    run = context.run()
    acceptance = _acceptance(accept_batch, reason, run.operator)
    with Progress(context) as progress:
        report = run_stream(
            context.spark(), opened, run, trigger=when, acceptance=acceptance, restart=restart,
            on_step=progress.on_step,
        )  # fmt: skip
    context.console.print(f"{dataset}: {report.batches} batches committed")
    _print_counts(context, report.counts)
    context.emit({"dataset": dataset, "run_id": run.run_id, "batches": report.batches, **report.counts})


def batch(
    ctx: typer.Context,
    dataset: _Dataset,
    manifest: Annotated[Path, typer.Option(help="The manifest: a JSON file beside the files it lists.")],
    accept_batch: _Accept = None,
    reason: _Reason = None,
    accept_gap: _Gap = None,
) -> None:
    """Load the files of a manifest, all or none. The same manifest again is a no-op that says so."""
    from lazaretto.jobs.batch import run_manifest
    from lazaretto.jobs.dataset import open_dataset

    if accept_gap is not None and not accept_gap.strip():
        raise typer.BadParameter("needs a reason", param_hint="--accept-gap")
    context: Context = ctx.obj
    opened = open_dataset(context.settings, dataset)
    run = context.run()
    acceptance = _acceptance(accept_batch, reason, run.operator)
    with Progress(context) as progress:
        result = run_manifest(
            context.spark(), opened, manifest, run, acceptance=acceptance, accept_gap=accept_gap,
            on_step=progress.on_step,
        )  # fmt: skip
    if result.already_committed:
        context.console.print(f"{dataset}: manifest {result.batch_id} was committed before; nothing was done")
    else:
        context.console.print(f"{dataset}: manifest {result.batch_id} committed")
    document = _counts_of(asdict(result))
    _print_counts(context, document)
    context.emit(
        {
            "dataset": dataset, "batch_id": result.batch_id, "run_id": run.run_id, "status": result.status, **document,
            "completeness": result.completeness,
        }
    )  # fmt: skip


def check(
    ctx: typer.Context,
    dataset: Annotated[str | None, typer.Argument(help="One dataset; all of them without it.")] = None,
) -> None:
    """Read configuration, contracts and rules, and analyse every rule on Spark. No data is read."""
    from lazaretto.jobs.dataset import open_dataset

    context: Context = ctx.obj
    settings = context.settings
    names = [dataset] if dataset else sorted(settings.datasets)
    if not names:
        raise ConfigurationError("no dataset is configured", where=settings.origin, remedy="add one to `datasets:`")
    checked = []
    for name in names:
        opened = open_dataset(settings, name)
        opened.verify(context.spark())
        checked.append(
            {
                "dataset": name, "schema_id": opened.contract.schema_id, "fields": len(opened.contract.fields),
                "row_rules": len(opened.rules.rows), "batch_rules": len(opened.rules.batch),
                "ruleset": opened.rules.fingerprint,
            }
        )  # fmt: skip
        context.console.print(
            f"{name}: contract {opened.contract.schema_id} with {len(opened.contract.fields)} fields, "
            f"{len(opened.rules.rows)} row rules and {len(opened.rules.batch)} batch rules: ok"
        )
    context.emit({"datasets": checked})


def demo(
    ctx: typer.Context,
    kafka: Annotated[bool, typer.Option("--kafka", help="Through a real broker, started for the demo.")] = False,
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo's lake goes.")] = Path("demo-lake"),
) -> None:
    """The whole story on this machine: 20,000 events with known defects, the stream, the batch, and what came out."""
    from lazaretto.cli.demo_report import print_report
    from lazaretto.jobs.demo import run_demo

    context: Context = ctx.obj
    run = context.run()
    with Progress(context) as progress:
        progress.say("starting Spark")
        spark = context.spark()
        report = run_demo(spark, folder, run, kafka=kafka, say=progress.say, on_step=progress.on_step)
    print_report(context, spark, report, run.run_id)


def _interval(text: str) -> str:
    found = _INTERVAL.match(text.strip())
    if found is None or int(found.group(1)) == 0:
        raise typer.BadParameter(f"{text!r} is no time: write 10s, 500ms, 5m or 1h", param_hint="--trigger")
    return f"{found.group(1)} {_UNITS[found.group(2)]}"


def _acceptance(batch_id: str | None, reason: str | None, operator: str) -> Any:
    from lazaretto.commit import Acceptance

    if batch_id is None:
        if reason is not None:
            raise typer.BadParameter("goes with --accept-batch", param_hint="--reason")
        return None
    if not (reason or "").strip():
        raise typer.BadParameter("is needed with --accept-batch", param_hint="--reason")
    return Acceptance(batch_id, reason or "", operator)


def _counts_of(result: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in result.items() if name.startswith("records_")}


def _print_counts(context: Context, counts: Mapping[str, int]) -> None:
    told = ", ".join(f"{value:,} {name.removeprefix('records_')}" for name, value in counts.items())
    context.console.print(f"  {told}")
