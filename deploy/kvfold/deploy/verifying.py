"""What `kvfold verify` does around the verification itself: the installation that it is for, and this process's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvfold.deploy.environment import owner_name
from kvfold.deploy.operating import operated, operated_dsn
from kvfold.deploy.stopping import StopRequest
from kvfold.log.settings import Settings
from kvfold.projector.comparison import Tell
from kvfold.projector.supervision import ProjectorSettings
from kvfold.projector.verify import Verification, VerifyOptions, verify

__all__ = ["fold_settings", "run_verify"]


def run_verify(
    settings: Settings,
    stop: StopRequest,
    *,
    at: Mapping[int, int] | None = None,
    rate: float | None = None,
    tell: Tell = lambda *_: None,
    tell_scope: Callable[[str, str, str], None] | None = None,
) -> Verification:
    """Verifies the serving generation of the installation that the settings name. Raises as `verify`."""
    with operated(settings) as (connection, log):
        return verify(
            log,
            operated_dsn(settings),
            connection,
            options=VerifyOptions(at, rate),
            settings=fold_settings(settings),
            tell=tell,
            tell_scope=tell_scope,
            should_stop=stop.is_set,
        )


def fold_settings(settings: Settings) -> ProjectorSettings:
    """How this process folds a scratch generation; nobody shares it, so its name need only be another one."""
    return ProjectorSettings(
        owner=f"verify-{owner_name(settings)}"[:40],
        claim_ms=settings.claim_ms,
        turn_ms=min(250, settings.claim_ms // 4),
        fold_threads=settings.fold_threads,
    )
