"""What became of a mutation (row X4)."""

from __future__ import annotations

from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.positions import position_headers
from kvfold.http.problems import NotFoundError
from kvfold.http.routes import Parameter, Route, json_answer
from kvfold.query_api import arguments
from kvfold.query_api.answers import decision_json, found, json_response, read_until
from kvfold.query_api.arguments import MIN_POSITION, WAIT
from kvfold.query_api.context import ReadContext
from kvfold.query_api.documented import POSITIONED, read_problems
from kvfold.query_api.shapes import DecisionShape
from kvfold.reads.decisions import decision_of_id, decisions_of_id

__all__ = ["mutation_routes"]

_SCOPE = Parameter("scope", "The record key that the id was used in, such as `d:dep-1`")


def mutation_routes(context: ReadContext) -> list[Route]:
    """The decision on a mutation id."""

    async def endpoint(call: Call) -> Response:
        number = arguments.mutation_id(call)
        scope = arguments.mutation_scope(call)
        wait_s = arguments.wait_seconds(call)
        if scope is None:
            everywhere = await read_until(context, call, decisions_of_id(number), bool, wait_s=wait_s)
            shapes = [decision_json(view) for view in everywhere.value]
            if not shapes:
                raise NotFoundError("nothing is decided about this id", headers=position_headers(everywhere))
            return json_response(shapes[0] if len(shapes) == 1 else shapes, everywhere)
        query = decision_of_id(number, scope, partition=await context.reader.partition(scope))
        read = await read_until(context, call, query, lambda view: view is not None, wait_s=wait_s)
        return json_response(decision_json(found(read, "decision about this id in this scope")), read)

    description = (
        "404 until it is folded, and again when the id was forgotten (7 days). Of a repeated id it is the first "
        "decision, with the first position. Where no scope is named and the id was used in several: a list."
    )
    invalid = ("malformed-mutation-id", "malformed-scope", "malformed-wait")
    return [
        Route(
            "GET",
            "/v1/mutations/{id}",
            endpoint,
            "What became of a mutation",
            "mutations",
            description=description,
            path=(Parameter("id", "The mutation id", {"type": "string", "format": "uuid"}),),
            query=(_SCOPE, WAIT),
            headers=(MIN_POSITION,),
            answers=(
                json_answer("The decision", DecisionShape | list[DecisionShape], headers=POSITIONED),
                *read_problems({400: invalid, 404: ("not-found",)}),
            ),
        )
    ]
