"""Errors in an app folder, for its author to fix."""

from __future__ import annotations

from localazure.errors import ConfigurationError


class AppLoadError(ConfigurationError):
    """The app cannot be loaded; the text names the file, the reason and the fix."""


class FunctionTimeoutError(Exception):
    """An invocation ran longer than host.json's `functionTimeout`."""


class NotJsonError(Exception):
    """A function's result cannot be written as JSON."""


class FunctionExitError(Exception):
    """A function called `sys.exit`."""
