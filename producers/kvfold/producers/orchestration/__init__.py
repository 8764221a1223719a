"""Durable orchestrations: the client from outside, and the runtime that workers run them with."""

from __future__ import annotations

from kvfold.producers.orchestration.client import OrchestrationClient

__all__ = ["OrchestrationClient"]
