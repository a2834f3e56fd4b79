"""What every command gets: settings read when first asked for, one Spark session, and one way to print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lazaretto.config import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lazaretto.commit import Tables
    from lazaretto.jobs.run import Run


@dataclass
class Context:
    """The global options, and what is made from them on demand.

    Attributes:
        json: one JSON object as the last line of stdout, and nothing else there.
        console: for people, on stdout; silent under `--json`. notes: for people, on stderr, always.
    """

    conf: Path | None = None
    env: str | None = None
    json: bool = False
    verbose: bool = False
    log_format: str = "console"
    memory: str = "2g"
    correlation_id: str = ""
    notes: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    _session: SparkSession | None = None
    _is_ours: bool = False

    @cached_property
    def console(self) -> Console:
        return Console(quiet=self.json, highlight=False)

    @cached_property
    def settings(self) -> Settings:
        return load_settings(self.conf, self.env)

    @cached_property
    def tables(self) -> Tables:
        from lazaretto.commit import Tables

        return Tables.of(self.settings)

    def spark(self) -> SparkSession:
        """The platform's session or a local one, opened at the first call."""
        if self._session is None:
            from pyspark.sql import SparkSession

            from lazaretto.jobs.session import current_or_local_session

            # a platform's session is not ours to end
            self._is_ours = SparkSession.getActiveSession() is None
            self._session = current_or_local_session(
                "lazaretto", memory=self.memory, spark_log="warn" if self.verbose else "off"
            )
        return self._session

    def run(self) -> Run:
        """This invocation as a run, with its logger bound."""
        from lazaretto.jobs.run import Run
        from lazaretto.observe.logs import get_logger

        run = Run(get_logger(), correlation_id=self.correlation_id)
        return replace(run, log=get_logger(run_id=run.run_id, correlation_id=run.correlation))

    def emit(self, document: Mapping[str, Any]) -> None:
        """The command's result: in JSON mode the last line of stdout, otherwise nothing."""
        if self.json:
            sys.stdout.write(json.dumps(document, default=str, ensure_ascii=False) + "\n")
            sys.stdout.flush()

    def close(self) -> None:
        """End the session and its JVM, if one was opened here."""
        session, self._session = self._session, None
        if session is None or not self._is_ours:
            return
        from lazaretto.jobs.session import stop_session

        stop_session(session)
