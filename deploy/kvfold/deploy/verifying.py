"""What `kvfold verify` and `checkpoint` do around the work itself: the installation that it is for, this process's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kvfold.deploy.environment import owner_name
from kvfold.deploy.operating import operated, operated_dsn
from kvfold.deploy.stopping import StopRequest
from kvfold.log.settings import Settings
from kvfold.projector.checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from kvfold.projector.comparison import Tell
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.verify import Verification, VerifyOptions, compared_with_a_fold, verify

__all__ = ["fold_settings", "run_checkpoint", "run_verify"]


def run_verify(
    settings: Settings,
    stop: StopRequest,
    *,
    at: Mapping[int, int] | None = None,
    rate: float | None = None,
    checkpoint: Path | None = None,
    tell: Tell = lambda *_: None,
    tell_scope: Callable[[str, str, str], None] | None = None,
) -> Verification:
    """Verifies the serving generation of the installation that the settings name. Raises as `verify`."""
    with operated(settings) as (connection, log):
        return verify(
            log,
            operated_dsn(settings),
            connection,
            options=VerifyOptions(at, rate, None if checkpoint is None else read_checkpoint(checkpoint)),
            settings=fold_settings(settings),
            tell=tell,
            tell_scope=tell_scope,
            should_stop=stop.is_set,
        )


def run_checkpoint(
    settings: Settings,
    stop: StopRequest,
    path: Path,
    *,
    rate: float | None = None,
    checkpoint: Path | None = None,
    tell: Tell = lambda *_: None,
) -> Checkpoint:
    """Writes a checkpoint of what the serving generation is now, after it was verified.

    Raises:
        CheckpointError: the serving generation differs from what the log folds to; nothing is written.
        OSError: the file cannot be written.
    """
    options = VerifyOptions(None, rate, None if checkpoint is None else read_checkpoint(checkpoint))
    with (
        operated(settings) as (connection, log),
        compared_with_a_fold(
            log,
            operated_dsn(settings),
            connection,
            options=options,
            settings=fold_settings(settings),
            tell=tell,
            should_stop=stop.is_set,
        ) as (scratch, result),
    ):
        if not result.is_equal:
            raise CheckpointError(
                f"{result.difference_count} rows of generation {result.generation} differ from what the log folds to: "
                "`kvfold verify` names them. No checkpoint is written."
            )
        tell("writing", 0, None)
        return write_checkpoint(connection, scratch, log.describe(), path)


def fold_settings(settings: Settings) -> ProjectorSettings:
    """How this process folds a scratch generation; nobody shares it, so its name need only be another one."""
    return ProjectorSettings(
        owner=f"verify-{owner_name(settings)}"[:40],
        claim_ms=settings.claim_ms,
        turn_ms=min(250, settings.claim_ms // 4),
        fold_threads=settings.fold_threads,
    )
