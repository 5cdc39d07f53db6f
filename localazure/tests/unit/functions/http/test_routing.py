from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.http.routing import RouteTable, RouteTemplate

GUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ("api/hello", "/api/hello", {}),
        ("api/hello", "/API/Hello/", {}),
        ("api/hello", "/api/hello/you", None),
        ("api/{name}", "/api/a%20b", {"name": "a b"}),
        ("api/{name}", "/api/a%2Fb%25", {"name": "a%2Fb%"}),
        ("files/{*path}", "/files/a%2fb/c", {"path": "a%2fb/c"}),
        ("api/{name}", "/api", None),
        ("api/{name?}", "/api", {}),
        ("api/{name=you}", "/api", {"name": "you"}),
        ("api/{name=you}", "/api/me", {"name": "me"}),
        ("files/{*path}", "/files/a/b.txt", {"path": "a/b.txt"}),
        ("files/{*path}", "/files", {}),
        ("{*path}", "/", {}),
        ("v{major:int}.{minor:int}/x", "/v1.20/x", {"major": "1", "minor": "20"}),
        ("{id:int}", "/12", {"id": "12"}),
        ("{id:int}", "/99999999999", None),
        ("{id:long}", "/99999999999", {"id": "99999999999"}),
        ("{id:int?}", "/", {}),
        ("{on:bool}", "/True", {"on": "True"}),
        ("{on:bool}", "/yes", None),
        ("{name:alpha:length(2,3)}", "/abc", {"name": "abc"}),
        ("{name:alpha:length(2,3)}", "/abcd", None),
        ("{name:length(2)}", "/ab", {"name": "ab"}),
        ("{name:minlength(2)}", "/a", None),
        ("{name:maxlength(2)}", "/abc", None),
        ("{n:min(3)}", "/2", None),
        ("{n:max(3)}", "/3", {"n": "3"}),
        ("{n:range(1,3)}", "/x", None),
        ("{id:guid}", f"/{GUID}", {"id": GUID}),
        ("{id:guid}", "/1", None),
        ("{x:double}", "/1.5e3", {"x": "1.5e3"}),
        ("{day:datetime}", "/2026-08-08", {"day": "2026-08-08"}),
        ("{day:datetime}", "/today", None),
        (r"{zip:regex(^\d{2,4}$)}", "/1234", {"zip": "1234"}),
        (r"{zip:regex(^\d{2,4}$)}", "/12345", None),
        (r"{zip:regex(^\d{{2,4}}$)}", "/1234", {"zip": "1234"}),
        (r"{zip:regex(^\d{{2}}-\d{{2}}$)?}", "/12-3", None),
    ],
)  # fmt: skip
def test_match(template: str, path: str, expected: dict[str, str] | None) -> None:
    assert RouteTemplate.parse(template).match(path) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a//b", "an empty segment"),
        ("{a", "braces that do not match"),
        ("a}", "braces that do not match"),
        ("{}", "has no name"),
        ("{1a}", "has no name"),
        ("{a:intt}", "unknown constraint 'intt'"),
        ("{a:int(3)}", "takes no argument"),
        ("{a:range(1)}", "takes 2 numbers"),
        ("{a:regex([)}", "constraint regex"),
        ("{a}/{A}", "a parameter occurs twice"),
        ("x{*a}", "must be a segment of its own"),
    ],
)
def test_a_wrong_template_is_named(template: str, message: str) -> None:
    with pytest.raises(ValueError, match="route") as caught:
        RouteTemplate.parse(template)
    assert repr(template) in str(caught.value)
    assert message in str(caught.value)


def test_the_more_specific_route_wins() -> None:
    texts = ["{*rest}", "items/{name}", "items/{id:int}", "items/new", "{kind}/new"]
    table = RouteTable([(RouteTemplate.parse(text), text) for text in texts])

    def target(path: str) -> str | None:
        found = table.match(path, lambda _: True)
        return found[0] if found else None

    assert target("/items/new") == "items/new"
    assert target("/items/7") == "items/{id:int}"
    assert target("/items/seven") == "items/{name}"
    assert target("/orders/new") == "{kind}/new"
    assert target("/a/b/c") == "{*rest}"


def test_a_target_that_is_not_acceptable_is_passed_over() -> None:
    table = RouteTable([(RouteTemplate.parse("a"), method) for method in ("GET", "POST")])
    assert table.match("/a", lambda method: method == "POST") == ("POST", {})
    assert table.match("/a", lambda method: method == "PUT") is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_whatever_is_encoded_into_a_path_comes_back(values: list[str]) -> None:
    template = RouteTemplate.parse("/".join(f"{{p{index}}}" for index in range(len(values))))
    path = "/" + "/".join(quote(value, safe="") for value in values)
    # Slashes in a value are the exception: the real host leaves them encoded.
    assert template.match(path) == {
        f"p{index}": value.replace("/", "%2F") for index, value in enumerate(values)
    }
