"""Mistakes in orchestrators that are found without running them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import azure.durable_functions as df
import pytest

from localazure.functions.app import orchestrator_code

Context = df.DurableOrchestrationContext


async def asynchronous(context: Context) -> object:
    return await context.call_activity("a")  # pyright: ignore[reportGeneralTypeIssues] - the mistake


async def asynchronous_generator(context: Context) -> AsyncGenerator[Any]:
    yield context.call_activity("a")


def sequence(context: Context) -> Generator[Any, Any, object]:
    return (yield context.call_activity("a"))


def delegating(context: Context) -> object:
    return sequence(context)


def forgetful(context: Context) -> object:
    context.create_timer(context.current_utc_datetime)
    return context.call_activity("a")


@pytest.mark.parametrize("function", [asynchronous, asynchronous_generator])
def test_an_async_orchestrator_is_in_error(function: Callable[..., Any]) -> None:
    (fault,) = orchestrator_code.faults(df.Orchestrator.create(function))
    assert "write `def`, and `yield`" in fault


@pytest.mark.parametrize("function", [sequence, delegating])
def test_others_are_not(function: Callable[..., Any]) -> None:
    call = df.Orchestrator.create(function)
    assert orchestrator_code.faults(call) == []
    assert orchestrator_code.forgotten_yields(call) is None


def test_steps_that_are_never_yielded_are_named() -> None:
    call: Any = df.Orchestrator.create(forgetful)  # pyright: ignore[reportArgumentType] - the mistake
    assert orchestrator_code.forgotten_yields(call) == (
        "it has no `yield`, so that call_activity, create_timer does nothing: write `yield` "
        "before it"
    )
