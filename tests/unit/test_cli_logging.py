"""The process's log: one line an event, and never a local variable."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from kvfold.deploy.logging import configure_logging
from support.cli import kept_logging

Form = Literal["text", "json"]


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    with kept_logging():
        yield


def configured(
    form: Form, level: Literal["debug", "info", "warning", "error"] = "info"
) -> tuple[io.StringIO, Any]:
    stream = io.StringIO()
    configure_logging(form=form, level=level, stream=stream)
    return stream, structlog.get_logger("test")


def fail_with_a_value() -> None:
    value = "".join(("the value ", "of an entry"))
    raise RuntimeError(f"no room for {len(value)} bytes")


def test_json_is_one_object_a_line() -> None:
    stream, log = configured("json")
    log.info("partition claimed", partition=3, name="naïve\n")
    line = stream.getvalue()
    assert line.count("\n") == 1
    fields = json.loads(line)
    assert fields.pop("timestamp").endswith("Z")
    assert fields == {"event": "partition claimed", "level": "info", "partition": 3, "name": "naïve\n"}


def test_text_has_no_colours_where_there_is_no_terminal() -> None:
    stream, log = configured("text")
    log.info("partition claimed", partition=3)
    assert "partition claimed" in stream.getvalue()
    assert "partition=3" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_tracebacks_show_no_local_variables(form: Form) -> None:
    stream, log = configured(form)
    try:
        fail_with_a_value()
    except RuntimeError:
        log.exception("fold failed")
    assert "no room for 21 bytes" in stream.getvalue()
    assert "fail_with_a_value" in stream.getvalue()
    assert "the value of an entry" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_ends_the_process_is_logged_alike(form: Form) -> None:
    stream, _ = configured(form)
    try:
        fail_with_a_value()
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    assert "process failed" in stream.getvalue()
    assert "the value of an entry" not in stream.getvalue()


def test_levels_below_the_chosen_one_are_left_out() -> None:
    stream, log = configured("json", "warning")
    log.info("left out")
    log.warning("kept")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["kept"]


def test_other_libraries_come_out_in_the_same_form_and_kafka_never_at_debug() -> None:
    stream, _ = configured("json", "debug")
    logging.getLogger("psycopg.pool").warning("lost %s", "a connection")
    logging.getLogger("kafka.producer").debug("record of an entry")
    logging.getLogger("kafka.producer").info("record of an entry")
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["event"], one["level"]) for one in events] == [("lost a connection", "warning")]
