from __future__ import annotations

import pytest

from handlers.platform.settings import APP_FOLDER, KEEP_DAYS, Connection, Settings
from orchestrations.errors import InvalidSetting


def test_a_connection_string_goes_before_an_endpoint() -> None:
    settings = Settings({"Bus": "Endpoint=sb://x/", "Bus__fullyQualifiedNamespace": "x.net"})
    found = settings.connection("Bus", "fullyQualifiedNamespace")
    assert found == Connection("Endpoint=sb://x/", "x.net")
    assert settings.connection("Bus", "other") == Connection("Endpoint=sb://x/", None)


def test_an_endpoint_alone_is_for_the_managed_identity() -> None:
    settings = Settings({"Bus": "", "Bus__fullyQualifiedNamespace": "x.net"})
    assert settings.connection("Bus", "fullyQualifiedNamespace") == Connection(None, "x.net")


@pytest.mark.parametrize("values", [{}, {"NAME": ""}])
def test_a_required_setting_must_say_something(values: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match="NAME is missing"):
        Settings(values).required("NAME")


@pytest.mark.parametrize("values", [{}, {"PIPELINES_FOLDER": "", "RECORDS_CONTAINER": ""}])
def test_what_is_not_set_has_its_default(values: dict[str, str]) -> None:
    settings = Settings(values)
    assert settings.pipelines_folder == APP_FOLDER / "pipelines"
    assert (settings.pipelines_folder / "digits" / "pipeline.yml").is_file()
    assert settings.records_container == settings.records_datastore == "landfall"
    assert {name: settings.keep_days(name) for name in KEEP_DAYS} == {
        name: default for name, (default, _) in KEEP_DAYS.items()
    }


@pytest.mark.parametrize("days", ["29", "-40", "30.5", "a month"])
def test_copies_are_kept_for_a_month_at_least(days: str) -> None:
    with pytest.raises(InvalidSetting, match="KEEP_COPIES_DAYS: set it to a whole number of days"):
        Settings({"KEEP_COPIES_DAYS": days}).keep_days("KEEP_COPIES_DAYS")


@pytest.mark.parametrize("name", KEEP_DAYS)
def test_no_retention_is_shorter_than_what_the_app_itself_reads(name: str) -> None:
    _, fewest = KEEP_DAYS[name]
    assert Settings({name: str(fewest)}).keep_days(name) == fewest
    with pytest.raises(InvalidSetting, match=f"{name}: set it to a whole number of days"):
        Settings({name: str(fewest - 1)}).keep_days(name)
