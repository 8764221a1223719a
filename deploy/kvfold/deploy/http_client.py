"""The client commands' side of HTTP: kvfold at KVFOLD_URL, its problems as errors, its events as requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from kvfold.schemas.errors import KvfoldError, UnavailableError
from kvfold.schemas.outcome import CONFLICT_CODES

__all__ = ["BATCH_MEDIA_TYPE", "KvfoldClient", "RefusedError", "ServerAwayError", "event_headers"]

BATCH_MEDIA_TYPE: Final = "application/cloudevents-batch+json"
DECISION_WAIT_S: Final = 8
"""How long the server is asked to wait for a decision: the most that it allows."""

_ANSWER_TIMEOUT_S: Final = 30.0
_CONNECT_TIMEOUT_S: Final = 5.0
# What may stand in a header as it is (CloudEvents HTTP binding, 3.1.3.2): printable ASCII but space, " and %.
_HEADER_SAFE: Final = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


class RefusedError(KvfoldError):
    """The server refused the request; `problem` is its problem document, empty if it sent none."""

    def __init__(self, message: str, *, status: int, problem: dict[str, Any]) -> None:
        super().__init__(message, code=str(problem.get("code", f"http-{status}")))
        self.status = status
        self.problem = problem


class ServerAwayError(UnavailableError):
    """No answer, or one that says to try again later; `problem` is the problem document, empty if there is none."""

    def __init__(self, message: str, *, problem: dict[str, Any] | None = None) -> None:
        self.problem = problem or {}
        super().__init__(message, code=str(self.problem.get("code", "server-away")))


class KvfoldClient:
    """Requests to one kvfold server."""

    def __init__(self, url: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url
        timeout = httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        # A proxy for the world outside is none for a server on this machine.
        self._http = httpx.Client(
            base_url=url, timeout=timeout, transport=transport, trust_env=not _is_loopback(url)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, url: str, **parameters: str | int | None) -> httpx.Response:
        """GET of a path below the server's URL; parameters that are None are left out.

        Raises:
            RefusedError: an answer of 4xx, 404 included.
            ServerAwayError: no answer, or 5xx.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        # Merged, since `params` would put them in the place of a query that is there: a key's, for one.
        return self._asked("GET", str(httpx.URL(url).copy_merge_params(given)) if given else url)

    def pages(self, url: str, **parameters: str | int | None) -> Iterator[dict[str, Any]]:
        """Every page of a listing, each by a `get` when it is asked for. Raises as `get`.

        A time in `as_of` is looked up for the first page; all others are of the same position.
        """
        while True:
            answer = self.get(url, **parameters)
            page: dict[str, Any] = answer.json()
            yield page
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]
            if parameters.get("as_of") is not None:
                parameters["as_of"] = answer.headers["X-Kvfold-Position"]

    @contextmanager
    def stream(self, url: str, **parameters: str | int | None) -> Iterator[httpx.Response]:
        """As `get`, with the answer's body still to be read: it breaks off with `ServerAwayError` where the server does."""
        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            with self._http.stream("GET", httpx.URL(url).copy_merge_params(given)) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer)
                yield answer
        except httpx.HTTPError as error:
            raise self._away(error) from error

    def post(self, url: str) -> httpx.Response:
        """POST of nothing to a path below the server's URL. Raises as `get`."""
        return self._asked("POST", url)

    def mutate(self, attributes: dict[str, str], body: bytes | None) -> dict[str, Any]:
        """Sends one mutation as a CloudEvent in binary mode and gives its decision, also one that did not apply.

        Raises:
            RefusedError: refused at the door; nothing was appended.
            ServerAwayError: no answer, or no outcome yet: repeat it with the same id.
        """
        try:
            answer = self._asked(
                "POST",
                "/v1/mutations",
                params={"wait": DECISION_WAIT_S},
                headers=event_headers(attributes),
                content=body or b"",
            )
        except RefusedError as refused:
            if "position" in refused.problem:
                return _decision(refused.problem)
            raise
        if not answer.content:  # a delete, which has nothing more to say
            position = answer.headers.get("X-Kvfold-Position")
            return {"id": attributes.get("id"), "status": "applied", "position": position}
        decision: dict[str, Any] = answer.json()
        return decision

    def mutate_batch(self, events: list[bytes]) -> list[dict[str, Any]]:
        """Sends a batch of CloudEvents, each as JSON text, and gives an outcome for each, in order.

        Raises:
            RefusedError: the batch as a whole was refused.
            ServerAwayError: no answer: repeat it.
        """
        answer = self._asked(
            "POST",
            "/v1/mutations",
            params={"wait": DECISION_WAIT_S},
            headers={"content-type": BATCH_MEDIA_TYPE},
            content=b"[" + b",".join(events) + b"]",
        )
        outcomes: list[dict[str, Any]] = answer.json()
        return outcomes

    def _asked(self, method: str, url: str, **parts: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, url, **parts)
        except httpx.HTTPError as error:
            raise self._away(error) from error
        if answer.is_success:
            return answer
        raise _refusal(answer)

    def _away(self, error: httpx.HTTPError) -> ServerAwayError:
        reason = str(error) or type(error).__name__
        return ServerAwayError(f"no answer from {self._url} ({reason}): is kvfold running there?")


def event_headers(attributes: dict[str, str]) -> dict[str, str]:
    """CloudEvents attributes as headers of binary mode: `content-type` for `datacontenttype`, `ce-…` for all others."""
    headers = {}
    for name, text in attributes.items():
        header = "content-type" if name == "datacontenttype" else f"ce-{name}"
        headers[header] = quote(text, safe=_HEADER_SAFE)
    return headers


def _decision(problem: dict[str, Any]) -> dict[str, Any]:
    """The decision that a problem document tells of: what has a position is in the log and was decided."""
    status = "conflict" if problem.get("code") in CONFLICT_CODES else "rejected"
    decision: dict[str, Any] = {"id": problem.get("mutation_id"), "status": status}
    members = ("position", "code", "version", "detail")
    return decision | {name: problem[name] for name in members if name in problem}


def _refusal(answer: httpx.Response) -> RefusedError | ServerAwayError:
    """What an answer that is no success is."""
    problem = _problem(answer)
    detail = problem.get("detail") or problem.get("title") or answer.text[:300]
    message = f"{detail} ({problem.get('code') or answer.status_code})"
    if answer.status_code >= 500:
        return ServerAwayError(message, problem=problem)
    return RefusedError(message, status=answer.status_code, problem=problem)


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        problem = answer.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
