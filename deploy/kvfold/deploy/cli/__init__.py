"""The command line: `kvfold COMMAND …`, one module for each group of commands."""

from __future__ import annotations

from kvfold.deploy.cli.group import main

__all__ = ["main"]
