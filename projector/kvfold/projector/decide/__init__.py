"""Decisions, pure: one module a family, `dispatch` for the one entry."""
