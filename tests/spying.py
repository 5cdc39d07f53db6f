"""Watching calls of what works as ever."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest import mock


def spy(owner: object, name: str) -> AbstractContextManager[mock.Mock]:
    """Note the calls of a function while the context lasts: `.call_args_list`.

    A method's calls have the object as their first argument.
    """
    return mock.patch.object(owner, name, autospec=True, side_effect=getattr(owner, name))
