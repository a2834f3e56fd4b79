"""The command line: Typer commands over the same calls as `jobs`."""
