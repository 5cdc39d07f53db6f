"""The value of an expression, as far as the files and the parameters decide it.

Functions: https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions
"""

# pyright: reportUnknownLambdaType=false
# Bicep's functions take values of any type.
from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tree_sitter import Node

from infra.check.bicep_file import BicepFile, string, text, walk

UNKNOWN: Final = object()
"""Only Azure decides it, or what it is made of has a problem of its own."""
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
TENANT = "00000000-0000-0000-0000-000000000002"
SUFFIX = "core.windows.net"
SUBSCRIPTION_ID = f"/subscriptions/{SUBSCRIPTION}"
POSTFIX = {"member_expression", "subscript_expression"}
OPERATIONS = POSTFIX | {"binary_expression", "ternary_expression"}


class Runtime(str):
    """Text that Azure gives a resource: equal for the same property of the same resource."""

    __slots__ = ()

    def member(self, name: str) -> Runtime:
        """A property of it."""
        return Runtime(f"{self}.{name}")


class Evaluator:
    """Evaluates the expressions of one file.

    Args:
        file: where variables are declared.
        given: values of parameters and of other names.
        resolve: the value of a resource or module, by its symbol.
        report: is told what is wrong with an expression.
        scope: id of the resource group or subscription that the file is deployed to.
    """

    def __init__(
        self,
        file: BicepFile,
        values: Mapping[str, Any],
        resolve: Callable[[str, Node], Any] = lambda _symbol, _node: UNKNOWN,
        report: Callable[[Node, str], None] = lambda _node, _message: None,
        scope: str = SUBSCRIPTION_ID,
    ) -> None:
        self.file = file
        self.values = values
        self.scope = scope
        self._resolve = resolve
        self._report = report
        self._variables: dict[str, Any] = {}

    def value(self, node: Node, local: Mapping[str, Any] | None = None) -> Any:  # noqa: C901, PLR0911, PLR0912 - one branch for each kind of expression
        """Text, number, list, dictionary or None; UNKNOWN, a Runtime text, or a resource."""
        local = local or {}
        inner = _first(node)
        if inner.type == "lambda_expression" and f"=>{inner.id}" not in local:
            # The grammar reads `x => x.y == z` as `(x => x).y == z`: all of it is the body.
            name = text(inner.named_children[0])
            return lambda each: self.value(node, {**local, name: each, f"=>{inner.id}": True})
        match node.type:
            case "string":
                return self._string(node, local)
            case "number":
                return int(text(node))
            case "boolean":
                return text(node) == "true"
            case "null":
                return None
            case "array":
                return [self.value(each, local) for each in _parts(node)]
            case "object":
                return self.object(node, local)
            case "identifier":
                return self._name(node, local)
            case "parenthesized_expression":
                return self.value(_parts(node)[0], local)
            case "ternary_expression":
                condition, yes, no = _parts(node)
                return self._choose(condition, yes, no, local)
            case "unary_expression":
                found = self.value(_parts(node)[0], local)
                return not found if isinstance(found, bool) else UNKNOWN
            case "binary_expression":
                return self._binary(node, local)
            case "call_expression":
                return self._call(node, local)
            case "lambda_expression":
                return self.value(node.named_children[-1], local)
            case "for_statement":
                body = node.named_children[-1]
                return [self.value(body, {**local, **names}) for names in self.loop(node, local)]
            case _ if node.type in POSTFIX:
                return self._postfix(node, local)
            case _:
                return UNKNOWN

    def object(self, node: Node, local: Mapping[str, Any]) -> dict[str, Any]:
        """An object's properties; a key may be an interpolation."""
        members: dict[str, Any] = {}
        for pair in node.named_children:
            if pair.type == "object_property":
                key, value = _parts(pair)
                if text(key) == "dependsOn":  # of symbols that need not be deployed
                    for each in walk(value):
                        if each.type == "identifier":
                            self._is_declared(each)
                    continue
                name = self._string(key, local) if key.type == "string" else text(key)
                members[str(name)] = self.value(value, local)
        return members

    def loop(self, node: Node, local: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The names that each round of a `for` has."""
        head, over = _parts(node)[:2]
        names = [text(each) for each in head.named_children] or [text(head)]
        rounds = self.value(over, local)
        for index, each in enumerate(rounds if isinstance(rounds, list) else []):
            yield dict(zip(names, (each, index), strict=False))

    def is_true(self, node: Node, local: Mapping[str, Any]) -> bool:
        """A condition; anything but a boolean is reported."""
        condition = self.value(node, local)
        if not isinstance(condition, bool) and condition is not UNKNOWN:
            self._report(node, f"{text(node)} is {kind(condition)}, where bool is expected")
        return condition is True

    def _choose(self, condition: Node, yes: Node, no: Node, local: Mapping[str, Any]) -> Any:
        if self.value(condition, local) is UNKNOWN:
            return UNKNOWN
        return self.value(yes if self.is_true(condition, local) else no, local)

    def _name(self, node: Node, local: Mapping[str, Any]) -> Any:
        name = text(node)
        for names in (local, self.values):
            if name in names:
                return names[name]
        if name in self.file.variables:
            if name not in self._variables:
                self._variables[name] = self.value(self.file.variables[name])
            return self._variables[name]
        return self._resolve(name, node) if self._is_declared(node) else UNKNOWN

    def _is_declared(self, node: Node) -> bool:
        is_declared = text(node) in self.file.symbols
        if not is_declared:
            self._report(node, f"{text(node)} is not declared")
        return is_declared

    def _string(self, node: Node, local: Mapping[str, Any]) -> Any:
        if not any(each.type == "interpolation" for each in node.named_children):
            return string(node)
        result = ""
        for part in node.named_children:
            value = (
                self.value(part.named_children[0], local)
                if part.type == "interpolation"
                else text(part)
            )
            if not isinstance(value, str | int):
                return UNKNOWN
            result += str(value)
        return result

    def _binary(self, node: Node, local: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each kind of operator
        left_node, right_node = _parts(node)
        operator = text(node.children[1])
        left = self.value(left_node, local)
        if operator in {"&&", "||"}:
            if left is UNKNOWN or left is (operator == "||"):
                return left
            return self.value(right_node, local)
        if operator == "??":
            return self.value(right_node, local) if left is None else left
        right = self.value(right_node, local)
        if UNKNOWN in (left, right):
            return UNKNOWN
        if operator in {"==", "!="}:
            return (left == right) is (operator == "==")
        if not (isinstance(left, int) and isinstance(right, int)):
            self._report(node, f"{text(node)}: {operator} needs two numbers")
            return UNKNOWN
        return _ARITHMETIC[operator](left, right)

    def _postfix(self, node: Node, local: Mapping[str, Any]) -> Any:
        """The grammar reads `a ? b : c.d` as `(a ? b : c).d`: `.d` belongs to `c`."""
        chain: list[Node] = []
        while node.type in POSTFIX:
            chain.append(node)
            node = node.named_children[0]
        if node.type == "ternary_expression":
            condition, yes, no = _parts(node)
            if self.value(condition, local) is UNKNOWN:
                return UNKNOWN
            if self.is_true(condition, local):
                return self.value(yes, local)
            return self._members(self.value(no, local), chain, local)
        if node.type == "unary_expression":
            found = self._members(self.value(_parts(node)[0], local), chain, local)
            return not found if isinstance(found, bool) else UNKNOWN
        return self._members(self.value(node, local), chain, local)

    def _members(self, value: Any, chain: list[Node], local: Mapping[str, Any]) -> Any:
        for each in reversed(chain):
            last = each.named_children[-1]
            if each.type == "member_expression" and last.type != "call_expression":
                value = self._member(value, text(last), each)
            else:
                value = self._member(value, self.value(last, local), each)
        return value

    def _member(self, owner: Any, key: Any, node: Node) -> Any:
        if owner is UNKNOWN or key is UNKNOWN:
            return UNKNOWN
        if isinstance(owner, list) and isinstance(key, int) and key < len(owner):  # pyright: ignore[reportUnknownArgumentType] - of any type
            return owner[key]  # pyright: ignore[reportUnknownVariableType] - the same
        if isinstance(owner, dict) and key in owner:
            return owner[key]  # pyright: ignore[reportUnknownVariableType] - the same
        member = getattr(owner, "member", None)  # pyright: ignore[reportUnknownArgumentType] - the same
        if member is not None:
            try:
                return member(key)
            except LookupError as error:
                self._report(node, str(error.args[0]))
                return UNKNOWN
        self._report(node, f"{text(node)}: there is no {key}")
        return UNKNOWN

    def _call(self, node: Node, local: Mapping[str, Any]) -> Any:
        name = text(node.named_children[0])
        arguments = [self.value(each, local) for each in _parts(node.named_children[1])]
        function = FUNCTIONS.get(name.rpartition(".")[2])
        if function is None:
            self._report(node, f"{name} is no function that this check knows")
            return UNKNOWN
        if any(each is UNKNOWN for each in arguments):
            return UNKNOWN
        try:
            if name == "loadJsonContent":
                return json.loads(self.file.path.with_name(*arguments).read_text("utf-8"))
            if name == "resourceId":
                return _resource_id(self.scope, *arguments)
            return function(*arguments)
        except (TypeError, ValueError, AttributeError, LookupError, OSError) as error:
            self._report(node, f"{text(node)}: {error}")
            return UNKNOWN


def evaluate(node: Node, file: BicepFile, values: Mapping[str, Any] | None = None) -> Any:
    """The value of an expression of one file, without the rest of the deployment."""
    return Evaluator(file, values or {}).value(node)


def kind(value: Any) -> str:
    """Bicep's name of a value's type; `any` for what only Azure decides."""
    for python, name in ((bool, "bool"), (int, "int"), (str, "string"), (list, "array")):
        if isinstance(value, python):
            return name
    return "object" if isinstance(value, dict) else "any"


def resource_id(resource_type: str, names: Sequence[str], scope: str) -> str:
    """The id of a resource: types and names take turns."""
    provider, *types = resource_type.split("/")
    if resource_type.lower() == "microsoft.resources/resourcegroups":
        return f"{SUBSCRIPTION_ID}/resourceGroups/{names[0]}"
    pairs = "/".join(f"{t}/{n}" for t, n in zip(types, names, strict=True))
    return f"{scope}/providers/{provider}/{pairs}"


def _resource_id(scope: str, *arguments: str) -> str:
    at = next(number for number, each in enumerate(arguments) if "/" in each)
    if at:
        scope = f"{SUBSCRIPTION_ID}/resourceGroups/{arguments[at - 1]}"
    return resource_id(arguments[at], arguments[at + 1 :], scope)


def _unique(*arguments: str) -> str:
    digest = int(hashlib.sha256("|".join(arguments).encode()).hexdigest(), 16)
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[digest >> 5 * n & 31] for n in range(13))


def _contains(container: Any, item: Any) -> bool:
    return item in container


def _concat(*parts: Any) -> Any:
    if all(isinstance(each, list) for each in parts):
        return [each for part in parts for each in part]
    return "".join(parts)


def _union(*parts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


_ARITHMETIC: Mapping[str, Callable[[int, int], Any]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": int.__floordiv__,
    "%": int.__mod__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "concat": _concat,
    "contains": _contains,
    "deployer": lambda: {"objectId": Runtime("deployer")},
    "empty": lambda value: not value,
    "environment": lambda: {
        "suffixes": {"storage": SUFFIX},
        "resourceManager": "https://management.azure.com/",
    },
    "filter": lambda values, test: [each for each in values if test(each) is True],
    "first": lambda values: values[0],
    "guid": lambda *parts: str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(map(str, parts)))),
    "join": lambda values, between: between.join(values),
    "last": lambda values: values[-1],
    "length": len,
    "loadJsonContent": lambda name: name,
    "map": lambda values, change: [change(each) for each in values],
    "replace": lambda value, old, new: value.replace(old, new),
    "resourceGroup": lambda name: {
        "name": name,
        "id": f"{SUBSCRIPTION_ID}/resourceGroups/{name}",
    },
    "resourceId": _resource_id,
    "split": lambda value, at: value.split(at),
    "string": str,
    "subscription": lambda: {"id": SUBSCRIPTION_ID, "subscriptionId": SUBSCRIPTION},
    "subscriptionResourceId": lambda kind, name: resource_id(kind, [name], SUBSCRIPTION_ID),
    "take": lambda value, count: value[:count],
    "tenant": lambda: {"tenantId": TENANT},
    "toLower": str.lower,
    "toObject": lambda values, key, value=lambda each: each: {
        key(each): value(each) for each in values
    },
    "toUpper": str.upper,
    "union": _union,
    "uniqueString": _unique,
    "utcNow": lambda _format="": "2026-01-01",
}


def _first(node: Node) -> Node:
    """The leftmost operand."""
    while node.type in OPERATIONS:
        node = node.named_children[0]
    return node


def _parts(node: Node) -> list[Node]:
    return [each for each in node.named_children if each.type != "comment"]
