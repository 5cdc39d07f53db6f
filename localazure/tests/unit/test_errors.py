from __future__ import annotations

import errno

import pytest

from localazure.errors import ConfigurationError, StartError, shown_without_traceback


@pytest.mark.parametrize("error", [StartError("mend it"), ConfigurationError("mend it")])
def test_an_error_that_the_user_can_fix_has_no_traceback(error: Exception) -> None:
    with pytest.raises(SystemExit) as ending, shown_without_traceback("localazure: "):
        raise error
    assert ending.value.code == "localazure: mend it"  # the interpreter prints it, status 1


def test_a_port_in_use_has_no_traceback() -> None:
    with (
        pytest.raises(SystemExit, match=r"7071 is in use: .* another port"),
        shown_without_traceback(),
    ):
        raise OSError(errno.EADDRINUSE, "7071 is in use")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyError("ours")])
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, shown_without_traceback():
        raise error
    assert caught.value is error
