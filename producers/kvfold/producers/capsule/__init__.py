"""Capsules: the log-backed core (`CapsuleClient`), the stores behind a capsule, and the SDK that capsule authors import."""

from __future__ import annotations

from kvfold.producers.capsule.client import CapsuleClient

__all__ = ["CapsuleClient"]
