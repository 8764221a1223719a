"""The router. It reads the raw path: split at `/` first, then each part percent-decoded once.

So an encoded slash is part of a name, `%25` is a percent sign, `+` a plus, and nothing is collapsed or resolved: `//`,
`.` and `..` are what they are. The key of a key route is all the rest, where every character is ordinary. For
clients that rewrite such paths, the same route takes the key as the query parameter `key`. No route ever redirects.

    /deployments/{id}/kv/{namespace}/{key:rest}     GET /deployments/d/kv/user/a%2Fb//c   key "a/b//c"
                                                    GET /deployments/d/kv/user?key=..     key ".."

Matching walks a tree by segment: a literal before a parameter, and never back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from kvfold.http.problems import MethodNotAllowedError, NotFoundError
from kvfold.http.query_strings import BAD_ESCAPE, parse_query
from kvfold.http.routes import KEY_SEGMENT, Route
from kvfold.schemas.errors import InvalidError

__all__ = ["Matched", "Router"]

_NO_QUERY: Final[dict[str, str]] = {}

Matched = tuple[Route, dict[str, str], dict[str, str]]
"""The route, its path parameters, its query parameters."""


@dataclass(slots=True)
class _Leaf:
    """The methods of one template; `by_key` are those of the key route whose key comes as a parameter."""

    names: tuple[str, ...]
    methods: dict[str, Route] = field(default_factory=dict)
    by_key: dict[str, Route] = field(default_factory=dict)
    accepted: dict[str, frozenset[str]] = field(default_factory=dict)
    accepted_by_key: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    leaf: _Leaf | None = None
    rest: _Leaf | None = None


class Router:
    """Finds the route of a request. Made once of all routes; two routes for one method and path are our mistake."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def match(self, scope: Scope) -> Matched:
        """The route of an HTTP scope, with its parameters.

        Raises:
            NotFoundError: no template fits.
            MethodNotAllowedError: the template fits, the method does not.
            InvalidError: `malformed-path`, `malformed-query` or `invalid-key`.
        """
        raw_path: bytes | None = scope.get("raw_path")
        if raw_path is None:  # optional in ASGI
            raw_path = quote(scope["path"]).encode()
        leaf, values = self._find(raw_path)
        path = dict(zip(leaf.names, values, strict=True))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        query_string: bytes = scope["query_string"]
        if query_string and leaf.by_key and _names_key(query_string):
            return _matched_by_key(leaf, method, path, query_string)
        route = leaf.methods.get(method)
        if route is None:
            if not leaf.methods:
                raise InvalidError(
                    "the key is missing: it follows in the path, or in ?key=", code="invalid-key"
                )
            raise MethodNotAllowedError(_allow(leaf))
        query = parse_query(query_string, leaf.accepted[method]) if query_string else _NO_QUERY
        return route, path, query

    def _find(self, raw_path: bytes) -> tuple[_Leaf, list[str]]:
        is_plain = b"%" not in raw_path and raw_path.isascii() and b"\x00" not in raw_path
        parts = raw_path.decode("ascii").split("/") if is_plain else _decoded_parts(raw_path)
        if parts[0]:
            raise NotFoundError()  # such as `*`
        node, values, leaf = self._root, list[str](), None
        for index in range(1, len(parts)):
            child = node.literals.get(parts[index])
            if child is None:
                leaf = node.rest
                if leaf is not None:
                    values.append("/".join(parts[index:]))
                    break
                child = node.parameter
                if child is None:
                    raise NotFoundError()
                values.append(parts[index])
            node = child
        else:
            leaf = node.leaf
        if leaf is None:
            raise NotFoundError()
        if not is_plain:
            _refuse_nul(leaf.names, values)
        return leaf, values

    def _add(self, route: Route) -> None:
        node, names = self._root, list[str]()
        accepted = frozenset(parameter.name for parameter in route.query)
        segments = route.segments[:-1] if route.is_key_route else route.segments
        for segment in segments:
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        leaf = node.leaf = node.leaf or _Leaf(tuple(names))
        assert leaf.names == tuple(names), f"{route.template} names its parameters otherwise"
        if not route.is_key_route:
            assert route.method not in leaf.methods, f"two routes for {route.method} {route.template}"
            leaf.methods[route.method] = route
            leaf.accepted[route.method] = accepted
            return
        assert not node.literals and node.parameter is None, f"{route.template} would hide other routes"
        assert route.method not in leaf.by_key, f"two routes for {route.method} {route.template}"
        rest = node.rest = node.rest or _Leaf((*names, KEY_SEGMENT.strip("{}").partition(":")[0]))
        rest.methods[route.method] = leaf.by_key[route.method] = route
        rest.accepted[route.method] = accepted
        leaf.accepted_by_key[route.method] = accepted | {"key"}


def _matched_by_key(leaf: _Leaf, method: str, path: dict[str, str], query_string: bytes) -> Matched:
    route = leaf.by_key.get(method)
    if route is None:
        raise MethodNotAllowedError(_allow(leaf))
    query = parse_query(query_string, leaf.accepted_by_key[method])
    path["key"] = query.pop("key")
    return route, path, query


def _names_key(query_string: bytes) -> bool:
    """Whether `key` is among the parameters; an escaped spelling of the name counts, too."""
    names = (pair.partition(b"=")[0] for pair in query_string.split(b"&"))
    return any(name == b"key" or (b"%" in name and unquote_to_bytes(name) == b"key") for name in names)


def _allow(leaf: _Leaf) -> str:
    methods = {*leaf.methods, *leaf.by_key}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _decoded_parts(raw_path: bytes) -> list[str]:
    if BAD_ESCAPE.search(raw_path):
        raise _malformed("a percent sign begins no escape: write it as %25")
    try:
        return [unquote_to_bytes(part).decode("utf-8") for part in raw_path.split(b"/")]
    except UnicodeDecodeError as error:
        raise _malformed("it is not UTF-8") from error


def _refuse_nul(names: tuple[str, ...], values: list[str]) -> None:
    for name, value in zip(names, values, strict=True):
        if "\x00" in value:
            if name == "key":
                raise InvalidError("the key holds NUL: it is not accepted", code="invalid-key")
            raise _malformed("it holds NUL")


def _malformed(what: str) -> InvalidError:
    return InvalidError(f"malformed path: {what}", code="malformed-path")
