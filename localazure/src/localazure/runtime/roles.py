"""Role assignments: the table `infra/roles.json` of an app's folder, which its Bicep assigns, too.

An app without such a file may do everything, as with account keys. The file is read again when it
has changed, since assignments come and go while services run.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from localazure.configuration_file import ConfigurationModel, read_configuration
from localazure.runtime.environment import Environment

APP = "app"
"""The principal that the app's identity is: the only one that asks for tokens here."""


class Assignment(ConfigurationModel):
    """One row: a principal has a role on a scope."""

    principal: str
    role: str
    role_id: str
    scope: str
    when: str
    reason: str


class _Table(ConfigurationModel):
    assignments: tuple[Assignment, ...]


class RoleAssignments:
    """The rows of a table, if there is one.

    Raises:
        ConfigurationError: the file is not valid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._rows: tuple[Assignment, ...] | None = None
        self._refresh()

    @classmethod
    def of_environment(cls, environment: Environment) -> RoleAssignments:
        """The table of the environment's app."""
        return cls(environment.app / "infra" / "roles.json")

    def roles(self, principal: str, scope: str) -> Collection[str] | None:
        """Names of a principal's roles on a scope; None if there is no table."""
        self._refresh()
        if self._rows is None:
            return None
        return {
            each.role for each in self._rows if (each.principal, each.scope) == (principal, scope)
        }

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._rows = self._read_at = None
            return
        found = (status.st_mtime_ns, status.st_size)
        if found != self._read_at:
            self._rows = read_configuration(self._path, _Table).assignments
            self._read_at = found
