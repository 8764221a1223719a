"""The steps of a rebuild: a generation that is folded from the log's start beside the serving one.

```
created ──► replaying ──► catching-up ──► verified
            workers fold up to the targets, the log's ends when it began, and compare every decision
                          projectors fold it on; what is left is compared
                                          it may be swapped in
```

Everything that a rebuild has to know stands in the catalogue (`kvfold.rebuild`, `kvfold.rebuild_partition`) and in the
generation's own offsets, so that it goes on after any interruption. Each step is a short transaction, and harmless when it
is repeated, also by two rebuilds at once. Who runs the workers is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg import Connection

from kvfold.log.port import Bounds, Log
from kvfold.projector.generations import (
    GenerationState,
    GenerationStateError,
    create_generation,
    serving_generation,
)
from kvfold.projector.replaying import next_offsets, pauses
from kvfold.schemas.errors import LogDivergedError
from kvfold.schemas.position import format_positions
from kvfold.schemas.projection import schema_name

__all__ = ["UNFINISHED_STATES", "Rebuild", "RebuildLook", "begin_rebuild", "find_rebuild", "look", "move_on"]

UNFINISHED_STATES: Final[tuple[GenerationState, ...]] = ("created", "replaying", "catching-up")


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild: its generation, the one that it is compared with, where it has to get, and where it stops if it does.

    `targets` are next offsets by partition; `to_position` the option as positions, None = it follows the log.
    """

    generation: int
    compared_with: int
    to_position: str | None
    targets: Mapping[int, int]
    log_id: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class RebuildLook:
    """Where a rebuild is: next offsets, how far decisions are compared, pauses with reason and detail, live workers."""

    state: GenerationState
    offsets: Mapping[int, int]
    compared: Mapping[int, int]
    paused: Mapping[int, tuple[str, str]]
    workers: int


def begin_rebuild(
    connection: Connection[Any],
    log: Log,
    *,
    to_position: Mapping[int, int] | None = None,
    checkpoint: Mapping[int, int] | None = None,
) -> Rebuild:
    """Makes the generation of a rebuild, or finds the one that was begun with the same options.

    `to_position` has the last offset to cover, by partition; a partition that it does not name goes to the log's end. A
    rebuild that stands where its option told it to may be sent on, to a later position or to follow the log.
    `checkpoint` has the next offsets that it will be filled up to before anything is folded.

    Raises:
        GenerationStateError: one with other options is under way.
        LogDivergedError: `offset-out-of-range`: the log does not reach back to where folding has to begin, or not up to the
            position.
    """
    count = log.describe().partition_count
    bounds = log.bounds(range(count))
    targets = {partition: bound.end for partition, bound in bounds.items()}
    if to_position is not None:
        _check_position(to_position, bounds)
        targets |= {partition: offset + 1 for partition, offset in to_position.items()}
    wanted = None if to_position is None else format_positions(to_position)
    with connection.transaction():
        connection.execute("SELECT FROM kvfold.pointer FOR UPDATE")
        found = find_rebuild(connection)
        if found is None:
            _create(connection, wanted, targets)
            created = find_rebuild(connection)
            assert created is not None
            begun = replace(created, resumed=False)
        elif found.to_position == wanted:
            begun = found
        else:
            begun = _sent_on(connection, found, wanted, targets)
        offsets = next_offsets(connection, begun.generation)
        _check_start({p: max(offset, (checkpoint or {}).get(p, 0)) for p, offset in offsets.items()}, bounds)
    return begun


def find_rebuild(connection: Connection[Any]) -> Rebuild | None:
    """The rebuild that is not finished, if there is one."""
    row = connection.execute(
        """
        SELECT r.generation, r.compared_with, r.to_position, (SELECT log_id FROM kvfold.log),
            (SELECT json_object_agg(p.partition, p.target) FROM kvfold.rebuild_partition p WHERE p.generation = r.generation)
        FROM kvfold.rebuild r JOIN kvfold.generation g ON g.id = r.generation
        WHERE g.state = ANY (%s) ORDER BY r.generation LIMIT 1
        """,
        (list(UNFINISHED_STATES),),
    ).fetchone()
    if row is None:
        return None
    generation, compared_with, to_position, log_id, targets_json = row
    targets = {int(partition): offset for partition, offset in targets_json.items()}
    return Rebuild(generation, compared_with, to_position, targets, log_id, resumed=True)


def look(connection: Connection[Any], generation: int) -> RebuildLook | None:
    """Where the rebuild of a generation is now; None if it is being dropped, or is gone."""
    try:
        return _look(connection, generation)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None


def _look(connection: Connection[Any], generation: int) -> RebuildLook | None:
    row = connection.execute("SELECT state FROM kvfold.generation WHERE id = %s", (generation,)).fetchone()
    if row is None or row[0] == "dropping":
        return None
    with connection.transaction():
        compared = connection.execute(
            "SELECT partition, compared_next FROM kvfold.rebuild_partition WHERE generation = %s",
            (generation,),
        ).fetchall()
        workers = connection.execute(
            f"""
            SELECT count(*) FROM {schema_name(generation)}.worker
            WHERE expires_at > clock_timestamp() AND backend_pid IN (SELECT pid FROM pg_stat_activity)
            """
        ).fetchone()
        assert workers is not None
        return RebuildLook(
            row[0],
            next_offsets(connection, generation),
            dict(compared),
            pauses(connection, generation),
            workers[0],
        )


def move_on(
    connection: Connection[Any], generation: int, *, before: GenerationState, after: GenerationState
) -> None:
    """The generation's next state; nothing where somebody else has moved it already."""
    connection.execute(
        "UPDATE kvfold.generation SET state = %s WHERE id = %s AND state = %s", (after, generation, before)
    )


def _create(connection: Connection[Any], to_position: str | None, targets: Mapping[int, int]) -> None:
    recorded = serving_generation(connection)
    generation = create_generation(connection, "created")
    connection.execute(
        "INSERT INTO kvfold.rebuild (generation, compared_with, to_position) VALUES (%s, %s, %s)",
        (generation, recorded, to_position),
    )
    connection.execute(
        """
        INSERT INTO kvfold.rebuild_partition (generation, partition, target)
        SELECT %s, * FROM unnest(%s::int[], %s::bigint[])
        """,
        (generation, list(targets), list(targets.values())),
    )


def _sent_on(
    connection: Connection[Any], found: Rebuild, to_position: str | None, targets: Mapping[int, int]
) -> Rebuild:
    """A rebuild with another option is refused, unless it stands at its position and the new one is later."""
    offsets = next_offsets(connection, found.generation)
    stands = found.to_position is not None and all(offsets[p] >= end for p, end in found.targets.items())
    if not stands or any(targets[partition] < offset for partition, offset in offsets.items()):
        option = (
            "without --to-position" if found.to_position is None else f"--to-position {found.to_position}"
        )
        raise GenerationStateError(
            f"generation {found.generation} is being rebuilt {option}: the same options go on with it, and "
            "`kvfold rebuild --cancel` throws it away"
        )
    connection.execute(
        "UPDATE kvfold.rebuild SET to_position = %s WHERE generation = %s", (to_position, found.generation)
    )
    connection.execute(
        """
        UPDATE kvfold.rebuild_partition r SET target = t.target
        FROM unnest(%s::int[], %s::bigint[]) AS t (partition, target)
        WHERE r.generation = %s AND r.partition = t.partition
        """,
        (list(targets), list(targets.values()), found.generation),
    )
    return replace(found, to_position=to_position, targets=targets)


def _check_position(positions: Mapping[int, int], bounds: Mapping[int, Bounds]) -> None:
    for partition, offset in positions.items():
        if partition not in bounds:
            raise GenerationStateError(
                f"the log has no partition {partition}: it has {len(bounds)}, from 0 on"
            )
        if offset >= bounds[partition].end:
            raise LogDivergedError(
                f"the log of partition {partition} ends at {bounds[partition].end - 1}, before {partition}:{offset}",
                code="offset-out-of-range",
                partitions=(partition,),
            )


def _check_start(offsets: Mapping[int, int], bounds: Mapping[int, Bounds]) -> None:
    for partition, bound in bounds.items():
        if offsets[partition] < bound.start and bound.start > 0:
            raise LogDivergedError(
                f"the log of partition {partition} begins at {bound.start}, and folding has to begin at "
                f"{offsets[partition]}: the records between are gone. Rebuild from a checkpoint that covers them.",
                code="offset-out-of-range",
                partitions=(partition,),
            )
