"""The board: bounded by bytes and by count, fair, and deaf to what was read for a work that is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from kvfold.projector.batch import prepare
from kvfold.projector.board import Board, Chunk
from kvfold.projector.partition import PartitionFold
from kvfold.projector.tables import PartitionState
from support.mutations import capsule_set, record_of

__all__: list[str] = []

_START = PartitionState(0, 0, 1, None, None, None)


def _board(*partitions: int, records_max: int = 10, bytes_max: int = 1_000_000) -> Board:
    board = Board(queue_bytes_max=bytes_max, queue_records_max=records_max)
    for partition in partitions:
        board.add(PartitionFold(partition, epoch=1, state=_START))
    return board


def _chunk(first: int, count: int, *, partition: int = 0, size: int = 1) -> Chunk:
    records = [
        record_of(capsule_set("k"), partition=partition, offset=offset)
        for offset in range(first, first + count)
    ]
    return Chunk(prepare(records, 1), first + count, size)


def _blocks(board: Board, chunk: Chunk) -> bool:
    """Whether one more chunk has to wait until something is taken."""
    work = board.works()[0]
    offered = Event()

    def offer() -> None:
        board.offer(work, chunk)
        offered.set()

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(offer)
        waits = not offered.wait(0.2)
        while board.take(timeout_s=0) is not None:
            board.done(work)
        future.result(30)
    return waits


def test_the_queue_is_bounded_by_count() -> None:
    board = _board(0, records_max=10)
    work = board.works()[0]
    board.offer(work, _chunk(0, 11))
    assert _blocks(board, _chunk(11, 1))


def test_the_queue_is_bounded_by_bytes() -> None:
    board = _board(0, bytes_max=100)
    board.offer(board.works()[0], _chunk(0, 1, size=101))
    assert _blocks(board, _chunk(1, 1))


def test_a_queue_within_its_bounds_does_not_wait() -> None:
    board = _board(0)
    board.offer(board.works()[0], _chunk(0, 10))
    assert not _blocks(board, _chunk(10, 1))


def test_what_was_read_for_a_work_that_is_gone_is_dropped() -> None:
    board = _board(0, 1)
    gone = board.works()[0]
    board.offer(gone, _chunk(0, 2))
    board.discard(gone)
    board.add(PartitionFold(0, epoch=2, state=_START))
    board.offer(gone, _chunk(2, 2))
    assert board.take(timeout_s=0) is None


def test_partitions_take_turns() -> None:
    board = _board(0, 1)
    taken = []
    for turn in range(4):
        for partition, work in board.works().items():
            board.offer(work, _chunk(turn, 1, partition=partition))
        found = board.take(timeout_s=0)
        assert found is not None
        taken.append(found[0].partition)
        board.done(found[0])
    assert sorted(taken[:2]) == [0, 1]


def test_a_partition_is_never_handed_out_twice_at_once() -> None:
    board = _board(0)
    work = board.works()[0]
    board.offer(work, _chunk(0, 1))
    assert board.take(timeout_s=0) is not None
    board.offer(work, _chunk(1, 1))
    assert board.take(timeout_s=0) is None
    board.done(work)
    assert board.take(timeout_s=0) is not None
    assert not board.remove(0, wait_s=0)
    board.done(work)
    assert board.remove(0)
