"""Gives uv the package sources that pip is configured with, since uv reads none of pip's settings.

Both installers then see the same indexes, so a machine behind a mirror needs no second
configuration. Variables of uv's own that are set already win.

Sources: https://pip.pypa.io/en/stable/topics/configuration/ (files, variables and their order),
https://docs.astral.sh/uv/reference/environment/
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final

# Each of pip's settings in a variable that uv reads; pip separates several values by white space.
_VARIABLES: Final = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "proxy": ("ALL_PROXY", " "),
}
# The older names of the same variables.
_OLDER: Final = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
# A setting in a later section replaces an earlier one.
_SECTIONS: Final = ("global", "install", ":env:")


def read_pip_settings(lines: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of `pip install`, by pip's long option names.

    Args:
        lines: what `pip config list` prints, such as `global.index-url='https://…'`; none where
            there is no pip.
        environment: has `PIP_INDEX_URL` and its like.
    """
    settings: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in lines:
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in settings and value:
            settings[section][name] = str(ast.literal_eval(value))
    for variable, value in environment.items():
        if variable.startswith("PIP_") and value:
            settings[":env:"][variable.removeprefix("PIP_").lower().replace("_", "-")] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        for name, value in settings[section].items():
            option = name.lstrip(".").replace("_", "-")
            merged["timeout" if option == "default-timeout" else option] = value
    return merged


def uv_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that have uv use the sources of pip's settings.

    Args:
        settings: as `read_pip_settings` gives them.
        environment: the process's own; what it says to uv is left as it is.
    """
    variables = {
        variable: separator.join(settings[name].split())
        for name, (variable, separator) in _VARIABLES.items()
        if settings.get(name, "").strip()
    }
    # pip takes the best version of all indexes; uv's default is the first index with any version.
    variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {
        variable: value
        for variable, value in variables.items()
        if variable not in environment and _OLDER.get(variable, variable) not in environment
    }


def install_options(settings: Mapping[str, str]) -> list[str]:
    """Settings of pip that uv takes as options only."""
    is_set = settings.get("no-index", "").lower() in {"1", "true", "yes", "on"}
    return ["--no-index"] if is_set else []
