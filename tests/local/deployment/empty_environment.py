"""`make package`: tests the package that azd deploys, with only its own requirements.

1. Build the package as azd does: the folder without what .funcignore names.
2. Make an empty environment and install the package's requirements.txt, as Azure's build does.
3. Import the app and the SDKs that it imports only when it needs them. localazure is not there yet.
4. Install localazure's wheel beside, start the package, and compare the functions.

`make test` does not run it, since it installs some eighty packages. There, test_package_imports
refuses imports that requirements.txt does not bring, and test_package_starts starts the package.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.wheel import Installed, build_wheel
from tests.contract.test_names import TRIGGERS
from tests.local.deployment.started_package import functions_of_started
from tests.unit.deployment.package import build_package

IMPORTS = (
    "import json, sys; sys.path.insert(0, {package!r}); import function_app; "
    "from handlers.platform.azure_ml import import_azure_ml; import_azure_ml(); "
    "import azure.eventgrid, azure.identity, azure.servicebus, azure.storage.blob; "
    "import importlib.util; "
    "print(json.dumps([importlib.util.find_spec('localazure') is None, "
    "[each.get_function_name() for each in function_app.app.get_functions()]]))"
)


@pytest.mark.timeout(600)
def test_the_package_starts_with_requirements_alone(tmp_path: Path) -> None:
    package = tmp_path / "package"
    build_package(package)
    installed = Installed(tmp_path / "environment")
    installed.install("-r", str(package / "requirements.txt"))

    is_alone, imported = json.loads(installed.metadata(IMPORTS.format(package=str(package))))
    assert is_alone
    assert set(TRIGGERS) <= set(imported)

    installed.install(str(build_wheel(tmp_path / "wheel")))
    started = functions_of_started([installed.program()], package, tmp_path)
    assert started == set(imported)
