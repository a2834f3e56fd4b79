"""Arguments that several commands take, checked before Spark is started."""

from __future__ import annotations

from datetime import UTC, datetime

from lazaretto.cli.context import Context
from lazaretto.errors import ConfigurationError


def known(context: Context, dataset: str | None) -> str | None:
    """The dataset as given; None stands for all of them.

    Raises:
        ConfigurationError: the configuration has no dataset of this name.
    """
    if dataset is not None:
        context.settings.dataset(dataset)
    return dataset


def moment(text: str, option: str) -> datetime:
    """ISO 8601 with a zone; a date alone is its beginning in UTC.

    Raises:
        ConfigurationError: it is neither; the message names the option.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None and len(text) <= len("2026-11-30"):
            at = at.replace(tzinfo=UTC)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ConfigurationError(
            f"{option} is no date, and no time with a zone", remedy="write 2026-11-30 or 2026-11-30T12:00:00Z"
        )
    return at
