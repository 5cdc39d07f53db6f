from __future__ import annotations

from typing import Any

import pytest

from localazure.supervision.function_report import find_pages

URL = "http://127.0.0.1:7071/api"


def function(
    route: str, *, level: str = "ANONYMOUS", methods: tuple[str, ...] = ("GET",), **more: Any
) -> dict[str, Any]:
    trigger = {"type": "httpTrigger", "authLevel": level, "methods": list(methods), "route": route}
    return {
        "name": "one",
        "invoke_url_template": f"{URL}/{route}",
        "isDisabled": False,
        "config": {"bindings": [trigger, {"type": "http"}]},
        **more,
    }


def test_what_serves_files_without_a_key_is_a_page() -> None:
    assert find_pages([function("ui/{*file}")]) == {"one": f"{URL}/ui"}


@pytest.mark.parametrize(
    "other",
    [
        function("ui/{*file}", level="FUNCTION"),
        function("ui/{*file}", methods=("GET", "POST")),
        function("ui"),
        function("users/{id}/{*file}"),
        function("ui/{*file}", isDisabled=True),
        function("", config={"bindings": [{"type": "timerTrigger"}]}, invoke_url_template=None),
    ],
    ids=["a key", "writes", "one answer", "a parameter", "disabled", "a timer"],
)
def test_nothing_else_is(other: dict[str, Any]) -> None:
    assert find_pages([other]) == {}
