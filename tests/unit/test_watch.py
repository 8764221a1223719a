"""What a watcher wants, what waits for it, and how it is sent: without a database."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kvfold.query_api.watch.events import Event, WatchFilter, control_event, id_line, positions_text
from kvfold.query_api.watch.subscription import Mutation, Subscription, by_record
from kvfold.reads.changes import Change, ChangeKind
from kvfold.schemas.limits import WATCH_QUEUE_BYTES_MAX
from kvfold.schemas.position import Position
from kvfold.schemas.types import Family

__all__: list[str] = []

FIRST = Position(0, 0)


def change(
    key: str = "k",
    *,
    scope: str = "d:dep",
    namespace: str | None = "user",
    kind: ChangeKind = ChangeKind.PUT,
    place: Position = FIRST,
    value: bytes | None = b"v",
    size: int | None = 1,
) -> Change:
    return Change(place, scope, kind, key, None, 0, namespace=namespace, version=1, size=size, value=value)


def cleared(prefix: str, *, scope: str = "c:p:capsule:x") -> Change:
    return change(prefix, scope=scope, namespace=None, kind=ChangeKind.CLEARED, value=None, size=None)


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (WatchFilter(), True),
        (WatchFilter(family=Family.DEPLOYMENT), True),
        (WatchFilter(family=Family.CAPSULE), False),
        (WatchFilter(scope="d:dep"), True),
        (WatchFilter(scope="d:de"), False),
        (WatchFilter(scope="d:dep", namespace="user"), True),
        (WatchFilter(scope="d:dep", namespace="other"), False),
        (WatchFilter(prefix="a"), True),
        (WatchFilter(prefix="ab"), True),
        (WatchFilter(prefix="abc"), False),
        (WatchFilter(prefix="a_"), False),
        (WatchFilter(prefix="%"), False),
    ],
)
def test_a_key_is_matched_by_scope_family_namespace_and_prefix(wanted: WatchFilter, seen: bool) -> None:
    assert wanted.matches(change("ab")) is seen


@pytest.mark.parametrize(
    ("prefix", "watched", "seen"),
    [
        ("", "a", True),
        ("a", "", True),
        ("a", "a", True),
        ("ab", "a", True),
        ("a", "ab", True),
        ("a", "b", False),
    ],
)
def test_a_range_is_matched_where_it_overlaps(prefix: str, watched: str, seen: bool) -> None:
    assert WatchFilter(scope="c:p:capsule:x", prefix=watched).matches(cleared(prefix)) is seen


def test_an_undeploy_is_of_every_namespace() -> None:
    undeployed = cleared("", scope="d:dep")
    assert WatchFilter(Family.DEPLOYMENT, namespace="user").matches(undeployed)
    assert not WatchFilter(Family.DEPLOYMENT, scope="d:other", namespace="user").matches(undeployed)


def test_an_event_is_one_line_of_ascii_whatever_the_key_holds() -> None:
    key = "a\n\r\u2028\u0085é🦊\x0b"
    lines = Event(change(key)).encoded().split(b"\n")
    assert [line.partition(b":")[0] for line in lines] == [b"event", b"data", b""]
    assert b"\r" not in lines[1] and lines[1].isascii()
    data = json.loads(lines[1].removeprefix(b"data: "))
    assert (data["key"], data["value_base64"], data["version"], data["size"]) == (key, "dg==", 1, 1)


def test_a_secret_has_a_size_and_no_value() -> None:
    secret = change(namespace="keys_secrets", value=b"KVS1").without_secret()
    assert secret.value is None and not secret.is_left_behind
    assert b'"value_base64":null' in Event(secret).encoded()
    assert change(namespace="keys", value=None, size=9).is_left_behind


def test_an_id_lists_what_was_covered() -> None:
    assert positions_text({3: 7, 0: 12, 5: -1}) == "0:12,3:7"
    assert positions_text({3: -1, 5: -1}) == "3:-1"
    assert control_event("progress", {"position": "3:7"}, id_="3:7").endswith(b"\nid: 3:7\n\n")
    assert id_line(None) == b"\n"


def mutation(offset: int, *, partition: int = 0, size: int = 1) -> Mutation:
    place = Position(partition, offset)
    return Mutation(partition, offset, (Event(change(f"k{offset}", place=place, size=size)),))


@pytest.fixture
def live() -> Callable[..., Subscription]:
    def make(*, room: int = WATCH_QUEUE_BYTES_MAX) -> Subscription:
        subscription = Subscription(WatchFilter(), {0: 4, 1: -1}, queue_bytes_max=room)
        for partition, offset in ((0, 4), (1, -1)):
            subscription.went_live(partition, offset)
        return subscription

    return make


def drained(subscription: Subscription) -> list[tuple[int, int]]:
    taken = []
    while (following := subscription.next()) is not None:
        taken.append((following.partition, following.offset))
        subscription.take()
    return taken


def test_what_a_watcher_has_already_is_not_offered_again(live: Callable[..., Subscription]) -> None:
    subscription = live()
    for offset in (3, 4, 5, 5, 6):
        assert subscription.offer(mutation(offset))
    assert drained(subscription) == [(0, 5), (0, 6)]


def test_a_full_queue_sets_a_watcher_behind_from_what_it_has(live: Callable[..., Subscription]) -> None:
    subscription = live(room=2 * mutation(5).size)
    assert [subscription.offer(mutation(offset)) for offset in (5, 6, 7)] == [True, True, False]
    assert subscription.behind == {0: 6}
    assert subscription.live == (1,)
    # What waits comes first; only then it is the partition's turn.
    assert subscription.turn() is None
    assert drained(subscription) == [(0, 5), (0, 6)]
    assert subscription.turn() == 0


def test_an_event_that_is_larger_than_the_queue_goes_through_an_empty_one(
    live: Callable[..., Subscription],
) -> None:
    subscription = live(room=1_000)
    assert subscription.offer(mutation(5, size=1_000_000))
    assert not subscription.offer(mutation(6))
    assert drained(subscription) == [(0, 5)]


def test_ids_never_go_back(live: Callable[..., Subscription]) -> None:
    subscription = live()
    assert subscription.position == "0:4"
    assert subscription.deliver(1, 9) == "0:4,1:9"
    assert subscription.deliver(0, 6) == "0:6,1:9"
    assert subscription.deliver(1, 3) == "0:6,1:9"


def test_changes_of_a_record_stay_together() -> None:
    places = [Position(2, 5), Position(2, 5), Position(2, 8)]
    grouped = by_record(2, [Event(change(str(n), place=place)) for n, place in enumerate(places)])
    assert [(each.offset, [event.change.key for event in each.events]) for each in grouped] == [
        (5, ["0", "1"]),
        (8, ["2"]),
    ]
