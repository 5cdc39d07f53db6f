"""What `main.bicep` deploys with some parameters: every resource, as `bicep snapshot` lists them.

Values that only Azure knows are `Runtime` texts, equal for the same property of the same resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tree_sitter import Node

from infra.check.bicep_file import (
    BicepFile,
    Module,
    Parameter,
    Resource,
    innermost,
    properties,
    text,
)
from infra.check.expressions import (
    SUBSCRIPTION_ID,
    SUFFIX,
    UNKNOWN,
    Evaluator,
    Runtime,
    kind,
    resource_id,
)
from infra.check.problem import Problem
from infra.check.symbols import module_parameters

MAIN = "main.bicep"
# Type and property -> its value, for a resource's name. What is missing stays a name.
FORMS: Mapping[tuple[str, str], str] = {
    ("Microsoft.Storage/storageAccounts", "primaryEndpoints.blob"): f"https://{{}}.blob.{SUFFIX}/",
    ("Microsoft.KeyVault/vaults", "vaultUri"): "https://{}.vault.azure.net/",
    ("Microsoft.Web/sites", "defaultHostName"): "{}.azurewebsites.net",
    ("Microsoft.EventGrid/topics", "endpoint"): "https://{}.eventgrid.azure.net/api/events",
    ("Microsoft.DurableTask/schedulers", "endpoint"): "https://{}.durabletask.io",
}


@dataclass(eq=False)
class Deployed:
    """One resource: declared, or an existing one that a file refers to."""

    symbol: str
    path: tuple[str, ...]
    """Symbols of the modules that it is in, from main.bicep on, and its own."""
    type: str
    names: tuple[str, ...]
    id: str
    body: dict[str, Any]
    file: BicepFile
    node: Node
    is_existing: bool
    scope: str
    """Where it is put: a resource group, the subscription, or another resource."""
    origin: str
    """The module of main.bicep that it is in, for messages; empty for main.bicep's own."""

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.names[-1]

    def member(self, key: str) -> Any:
        """A property, as an expression reads it."""
        if key in {"id", "name", "type"}:
            return getattr(self, key)
        return _Part(self, (key,)).value()

    def get(self, path: str) -> Any:
        """The value at a path of the body; None if there is none."""
        value: Any = self.body
        for key in path.split("."):
            if isinstance(value, list) and key.isdecimal():
                value = dict(enumerate(value)).get(int(key))  # pyright: ignore[reportUnknownArgumentType] - of any type
            else:
                value = value.get(key) if isinstance(value, dict) else None
        return value

    def problem(self, message: str, path: str = "") -> Problem:
        """A finding at the property, or the part of it that the file writes out."""
        node, line = innermost(self.node), self.node.start_point[0] + 1
        for key in path.split("."):
            written = {name: (value, at) for name, value, at in properties(node)} if node else {}
            if key not in written:
                break
            node, line = written[key]
            node = node if node.type == "object" else None
        return Problem(self.file.path.name, line, f"{self.symbol}: {message}{self.origin}")


@dataclass(frozen=True)
class _Part:
    """A property of a resource, which Azure may know more of than the file."""

    owner: Deployed
    keys: tuple[str, ...]

    def value(self) -> Any:
        path = ".".join(self.keys)
        written = self.owner.get(path)
        if written is not None and not isinstance(written, dict):
            return written
        if path == "location":  # of an existing resource
            return Runtime(f"{self.owner.id}#{path}")
        form = FORMS.get((self.owner.type, path.removeprefix("properties.")))
        return self if form is None else form.format(self.owner.name)

    def member(self, key: str) -> Any:
        part = _Part(self.owner, (*self.keys, key))
        depth = 2 if self.keys[0] in {"properties", "identity"} else 1
        is_inner = key in {"properties", "identity", "primaryEndpoints"}
        if len(part.keys) < depth or is_inner:
            return part
        value = part.value()
        return Runtime(f"{self.owner.id}#{'.'.join(part.keys)}") if value is part else value


@dataclass
class _Instance:
    """A file that is deployed with its parameters; main.bicep, or a module."""

    deployment: Deployment
    file: BicepFile
    path: tuple[str, ...]
    scope: str
    arguments: dict[str, Any]
    origin: str = ""

    def __post_init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._declared = {each.symbol: each for each in (*self.file.resources, *self.file.modules)}
        self.evaluator = Evaluator(
            self.file, self.arguments, self.resolve, self.report, scope=self.scope
        )
        for name, parameter in self.file.parameters.items():
            if parameter.default is not None:
                default = self.evaluator.value(parameter.default)
                self._check(parameter, default, parameter.default, self.file)
                self.arguments.setdefault(name, default)

    def report(self, node: Node, message: str) -> None:
        self.deployment.problems.add(self.file.problem(node, message))

    def deploy(self) -> None:
        for symbol in self._declared:
            found = self._symbol(symbol)
            for each in found if isinstance(found, list) else [found]:
                if isinstance(each, _Instance):
                    each.deploy()
        for name, node in self.file.outputs.items():
            self.output(name, node)

    def resolve(self, symbol: str, node: Node) -> Any:
        if symbol not in self._declared:
            return UNKNOWN
        declared = self._symbol(symbol)
        if declared is None:
            self.report(node, f"{symbol} is not deployed {self.deployment.words}")
            return UNKNOWN
        return declared

    def _symbol(self, symbol: str) -> Any:
        if symbol not in self._known:
            self._known[symbol] = UNKNOWN  # what refers to itself
            declared = self._declared[symbol]
            value = [each for each in declared.node.named_children if each.type != "comment"][-1]
            made = [self._make(declared, body, names) for body, names in self._bodies(value, {})]
            is_loop = value.type == "for_statement"
            self._known[symbol] = made if is_loop else next(iter(made), None)
        return self._known[symbol]

    def _bodies(
        self, node: Node, local: Mapping[str, Any]
    ) -> Iterator[tuple[Node, Mapping[str, Any]]]:
        parts = [each for each in node.named_children if each.type != "comment"]
        if node.type == "object":
            yield node, local
        elif node.type == "if_statement" and self.evaluator.is_true(parts[0], local):
            yield from self._bodies(parts[-1], local)
        elif node.type == "for_statement":
            for names in self.evaluator.loop(node, local):
                yield from self._bodies(parts[-1], {**local, **names})

    def _make(self, declared: Resource | Module, body: Node, local: Mapping[str, Any]) -> Any:
        values = self.evaluator.object(body, local)
        if isinstance(declared, Module):
            return self._module(declared, values)
        parent, scope = values.get("parent"), values.get("scope", self.scope)
        scope = getattr(scope, "id", scope["id"] if isinstance(scope, dict) else scope)
        names = (str(values.get("name", "")),)
        if isinstance(parent, Deployed):
            names, scope = (*parent.names, *names), parent.scope
        depth = declared.type.count("/")
        made = Deployed(
            symbol=declared.symbol,
            path=(*self.path, declared.symbol),
            type=declared.type,
            names=names,
            id=resource_id(declared.type, (*names, *[""] * depth)[:depth], str(scope)),
            body=values,
            file=self.file,
            node=declared.node,
            is_existing=declared.existing,
            scope=str(scope),
            origin=self.origin,
        )
        self.deployment.everything.append(made)
        return made

    def _module(self, declared: Module, values: dict[str, Any]) -> Any:
        file = self.deployment.files.get(declared.path)
        scope = values.get("scope", self.scope)
        scope = getattr(scope, "id", scope["id"] if isinstance(scope, dict) else scope)
        arguments: dict[str, Any] = values.get("params", {})
        module = f"module {declared.symbol}:"
        if file is None:
            self.report(declared.node, f"{module} there is no file {declared.path}")
            return UNKNOWN
        params = module_parameters(declared)
        for name in params.keys() - file.parameters.keys():
            self.report(params[name], f"{module} {declared.path} has no parameter {name}")
        for name, parameter in file.parameters.items():
            if name in arguments:
                self._check(parameter, arguments[name], params[name], file)
                outer = self.file.parameters.get(text(params[name]))
                if outer and ("secure" in outer.limits) != ("secure" in parameter.limits):
                    self.report(params[name], f"{module} {name} is @secure() on one side only")
            elif parameter.default is None:
                self.report(declared.node, f"{module} parameter {name} is missing")
        path = (*self.path, declared.symbol)
        line = declared.node.start_point[0] + 1
        origin = self.origin or f" ({self.file.path.name}:{line}: module {declared.symbol})"
        return _Instance(self.deployment, file, path, str(scope), dict(arguments), origin)

    def member(self, key: str) -> Any:
        if key == "outputs":
            return self
        if key not in self.file.outputs:
            raise LookupError(f"{self.file.path.name} has no output {key}")
        return self.output(key, self.file.outputs[key])

    def output(self, name: str, node: Node) -> Any:
        value = self.evaluator.value(node)
        parts = _siblings(node)
        declared = next((text(each) for each in parts if each.type == "type"), "any")
        if {declared, kind(value)}.isdisjoint({"any"}) and kind(value) != declared:
            self.report(node, f"output {name} is {declared}, its value {kind(value)}")
        return value

    def _check(self, parameter: Parameter, value: Any, node: Node, file: BicepFile) -> None:
        for message in misfits(parameter, value):
            at = f"{file.path.name}:{parameter.node.start_point[0] + 1}"
            self.report(node, f"{message} ({at})")


class Deployment:
    """Everything that is deployed with some parameters of main.bicep.

    Args:
        files: the Bicep files by name.
        parameters: those of main.bicep.
        words: names the parameters in messages, such as "with network=private".
    """

    def __init__(
        self, files: Mapping[str, BicepFile], parameters: Mapping[str, Any], words: str
    ) -> None:
        self.files = files
        self.words = words
        self.everything: list[Deployed] = []
        self.problems: set[Problem] = set()
        self.main = _Instance(self, files[MAIN], (), SUBSCRIPTION_ID, dict(parameters))
        self.main.deploy()

    @property
    def is_private(self) -> bool:
        """Whether nothing but the app itself may be on the internet."""
        return self.main.arguments.get("network") == "private"

    @cached_property
    def resources(self) -> list[Deployed]:
        """What this deployment makes or changes."""
        return [each for each in self.everything if not each.is_existing]

    @cached_property
    def made(self) -> dict[str, Deployed]:
        """The same by id."""
        return {each.id: each for each in self.resources}

    def resources_of_type(self, resource_type: str) -> list[Deployed]:
        """The resources of one type."""
        return [each for each in self.resources if each.type == resource_type]

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """Name and value of what main.bicep returns."""
        return {
            name: self.main.output(name, node) for name, node in self.files[MAIN].outputs.items()
        }


def _siblings(node: Node) -> list[Node]:
    return node.parent.named_children if node.parent is not None else []


def misfits(parameter: Parameter, value: Any) -> Iterator[str]:
    """What is wrong with a parameter's value: its type, and its decorators."""
    actual = kind(value)
    if {actual, parameter.type}.isdisjoint({"any"}) and actual != parameter.type:
        yield f"{parameter.name} is {parameter.type}, not {actual}"
        return
    allowed = parameter.limits.get("allowed")
    if allowed is not None and actual != "any" and value not in allowed:
        yield f"{parameter.name} is one of {', '.join(map(str, allowed))}, not {value!r}"
    size = value if isinstance(value, int) else len(value) if isinstance(value, str | list) else 0
    suffix = "Value" if isinstance(value, int) else "Length"
    least, most = (parameter.limits.get(f"{each}{suffix}", size) for each in ("min", "max"))
    if actual != "any" and not least <= size <= most:
        yield f"{parameter.name}: {size} is not within {least} and {most}"
