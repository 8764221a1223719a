"""`python -m kvfold.deploy.cli`."""

from __future__ import annotations

from kvfold.deploy.cli.group import main

main()
