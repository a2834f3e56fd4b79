"""The command line: global options, error lines and exit codes. The commands are in the modules beside this one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lazaretto import __version__
from lazaretto.cli import ingesting, reading, reconciling
from lazaretto.cli.context import Context
from lazaretto.errors import FinishedWithFailuresError, LazarettoError

# Typer carries its own copy of Click, whose base of all usage errors has no public name
_UsageError: Any = typer.BadParameter.__base__

BUG = 1
INTERRUPTED = 130

app = typer.Typer(
    name="lazaretto",
    help=(
        "Quarantine-first ingestion for the lakehouse: valid records land once, invalid ones are held with the reason."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lazaretto {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    conf: Annotated[Path | None, typer.Option(help="Configuration file; conf/base.yml without it.")] = None,
    env: Annotated[str | None, typer.Option(help="Merge conf/ENV.yml over the configuration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The last line of stdout is one JSON object.")] = False,
    verbose: Annotated[bool, typer.Option(help="Tracebacks, and Spark's own warnings.")] = False,
    log_format: Annotated[str, typer.Option(help="console or json; logs go to stderr.")] = "console",
    memory: Annotated[str, typer.Option(help="Heap of a local Spark driver.")] = "2g",
    correlation_id: Annotated[str, typer.Option(help="Kept in ledger, audit and logs.")] = "",
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Keep the global options for the command, and set up the logs."""
    context: Context = ctx.obj
    context.conf, context.env, context.json, context.verbose = conf, env, as_json, verbose
    context.log_format, context.memory, context.correlation_id = log_format, memory, correlation_id
    if log_format not in ("console", "json"):
        raise typer.BadParameter(f"{log_format!r}: console or json", param_hint="--log-format")
    from lazaretto.observe.logs import configure_logging

    configure_logging("json" if log_format == "json" else "console", verbose)


ingesting.register(app)
reading.register(app)
reconciling.register(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code; everything is printed by then."""
    # before parsing, so that a usage error, too, is told as it was asked for
    context = Context(json="--json" in arguments)
    try:
        command = typer.main.get_command(app)
        result = command.main(list(arguments), prog_name="lazaretto", standalone_mode=False, obj=context)
        return result if isinstance(result, int) else 0
    except LazarettoError as exc:
        _failed(context, exc.exit_code, str(exc), exc, error_class=exc.error_class)
        return exc.exit_code
    except typer.Abort:
        return INTERRUPTED
    except _UsageError as exc:
        hint = f" (see `{exc.ctx.command_path} --help`)" if exc.ctx else ""
        # without a command the help has been printed, and there is no message
        _failed(context, 2, (exc.format_message() or "a command is missing") + hint, exc)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as exc:
        from lazaretto.commit.spark_edge import session_gone, session_is_gone

        if session_is_gone(exc):
            gone = session_gone(None)
            _failed(context, gone.exit_code, str(gone), exc, error_class=gone.error_class)
            return gone.exit_code
        # the text of an unforeseen error may hold anything, a record's values too
        kind = type(exc).__name__
        from lazaretto.observe.logs import get_logger

        get_logger().error("failed", exc_info=exc)
        _failed(context, BUG, f"unexpected {kind} (next: run again with --verbose and report it)", exc)
        return BUG
    finally:
        context.close()


def _failed(context: Context, code: int, line: str, exc: Exception, error_class: str | None = None) -> None:
    if context.verbose:
        traceback.print_exception(exc)
    context.notes.print(f"lazaretto: error {code}: {line}", markup=False, soft_wrap=True)
    error = {"message": line, "type": type(exc).__name__, "class": error_class}
    report = exc.report if isinstance(exc, FinishedWithFailuresError) else {}
    context.emit({"exit_code": code, "error": error, **report})


def main() -> None:
    """The console script. Success just returns: a platform's task runner may take any SystemExit for a failure."""
    code = run(sys.argv[1:])
    if code:
        sys.exit(code)
