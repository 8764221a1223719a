"""Folds the log into Postgres."""
