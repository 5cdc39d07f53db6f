"""What the app and the hooks are told, and who may do what, against what is deployed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.check.azure_table import Form
from infra.check.deployed_rules import HOST
from infra.check.deployment import MAIN, Deployed, Deployment
from infra.check.expressions import SUBSCRIPTION, SUFFIX, TENANT
from infra.check.problem import Problem

PAGE = "docs/deploy.md"
WORKSPACE = "Microsoft.MachineLearningServices/workspaces"
ACCOUNT = "Microsoft.Storage/storageAccounts"
CONTAINER = "properties.containerName"
OWN_IDENTITY = (
    "properties.keyVaultReferenceIdentity",
    "properties.functionAppConfig.deployment.storage.authentication.userAssignedIdentityResourceId",
)
SITE = "Microsoft.Web/sites"
SUBSCRIPTIONS = "Microsoft.EventGrid/systemTopics/eventSubscriptions"
# First part of an event's type -> the principal of roles.json whose topic delivers it.
SOURCES = {
    "Microsoft.Storage": "blobEvents",
    "Microsoft.MachineLearningServices": "jobEvents",
    "Microsoft.KeyVault": "vaultEvents",
}
# What azd itself gives a hook. https://learn.microsoft.com/azure/developer/azure-developer-cli/environment-variables-faq
OF_AZD = {"AZURE_ENV_NAME", "AZURE_LOCATION", "AZURE_SUBSCRIPTION_ID", "AZURE_PRINCIPAL_ID"}
# Values of the environment that a person may set for a hook: docs/deploy.md.
BY_HAND = {
    "AZURE_CLIENT_ID",
    "LANDFALL_FUNCTION_KEY",
    "LANDFALL_NETWORK_CHANGE",
    "LANDFALL_SMOKE_TIMEOUT_SECONDS",
}
CONNECTION_OF_SCHEDULER = "DURABLE_TASK_SCHEDULER_CONNECTION_STRING"
NCRONTAB = r"([\d*/,-]+ ){5}[\d*/,A-Za-z-]+"


class Facts:
    """What a deployment's parts are called, found by what they are for."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed
        (self.site,) = deployed.resources_of_type(SITE)
        (self.config,) = deployed.resources_of_type(f"{SITE}/config")
        self.settings: dict[str, Any] = self.config.body["properties"]
        self.computes = deployed.resources_of_type(f"{WORKSPACE}/computes")
        self.datastores = {
            each.name: each for each in deployed.resources_of_type(f"{WORKSPACE}/datastores")
        }
        self.app = next(iter(self.site.get("identity.userAssignedIdentities") or [""]))
        self.client = f"{self.app}#properties.clientId"
        identities = [
            next(iter(each.get("identity.userAssignedIdentities") or [""]))
            for each in self.computes
        ]
        self.cluster = identities[0] if identities else ""
        self.subscriptions = {
            SOURCES.get(
                str(each.get("properties.filter.includedEventTypes")[0]).rpartition(".")[0], ""
            ): each
            for each in deployed.resources_of_type(SUBSCRIPTIONS)
        }

    def account(self, connection: str) -> str:
        """The account's name in a connection's blob endpoint."""
        host = HOST.match(str(self.settings.get(f"{connection}__blobServiceUri")))
        return host[1] if host else ""

    def only(self, resource_type: str) -> Deployed | None:
        """The first resource of a type, or None."""
        return next(iter(self.deployed.resources_of_type(resource_type)), None)

    def subscription_value(self, principal: str, path: str) -> str:
        """A value of the event subscription that a principal delivers for."""
        subscription = self.subscriptions.get(principal)
        return str(subscription.get(path)) if subscription else ""

    @property
    def secrets_vault(self) -> str:
        """The name of the vault that the settings refer to."""
        match = re.search(
            r"https://([\w-]+)\.vault", str(self.settings.get("INBOUND_WEBHOOK_SECRET"))
        )
        return match[1] if match else ""


def expected_settings(facts: Facts, root: Path) -> dict[str, Any]:
    """Pattern of a setting's name -> the value that it must have."""
    host = json.loads((root / "host.json").read_text("utf-8"))["extensions"]
    durable, bus = host["durableTask"], host["serviceBus"]
    limits = (
        durable.get("maxConcurrentActivityFunctions"),
        durable.get("maxConcurrentOrchestratorFunctions"),
        bus.get("maxConcurrentCalls"),
    )
    at_once = sum(each for each in limits if isinstance(each, int))
    workspace = facts.computes[0].names[0] if facts.computes else ""
    group = facts.computes[0].scope.rpartition("/")[2] if facts.computes else ""
    storage = facts.datastores.get("landing")
    records = [each for each in facts.datastores.values() if each.name != "landing"]
    data = storage.get("properties.accountName") if storage else ""
    package = HOST.match(
        str(facts.site.get("properties.functionAppConfig.deployment.storage.value"))
    )
    own = package[1] if package else ""
    made = facts.only(WORKSPACE)
    jobs = (
        str(made.get("properties.storageAccount")).rpartition("/")[2]
        if made
        else facts.account("WorkspaceStorage")
    )
    topic = facts.only("Microsoft.EventGrid/topics")
    bus_names = [
        each.name for each in facts.deployed.resources_of_type("Microsoft.ServiceBus/namespaces")
    ]
    scheduler = facts.only("Microsoft.DurableTask/schedulers")
    insights = facts.only("Microsoft.Insights/components")

    def uri(account: str, service: str) -> str:
        return f"https://{account}.{service}.{SUFFIX}"

    return {
        r"AZURE_CLIENT_ID|\w+__clientId": facts.client,
        r"\w+__credential": "managedidentity",
        **{
            f"AzureWebJobsStorage__{part}ServiceUri": uri(own, part)
            for part in ("blob", "queue", "table")
        },
        "DataStorage__blobServiceUri": uri(data, "blob"),
        "WorkspaceStorage__blobServiceUri": uri(jobs, "blob"),
        "ServiceBus__fullyQualifiedNamespace": f"{bus_names[0]}.servicebus.windows.net",
        "EventGridTopic__endpoint": topic.member("properties").member("endpoint") if topic else "",
        "AZUREML_SUBSCRIPTION_ID": SUBSCRIPTION,
        "AZUREML_RESOURCE_GROUP": group,
        "AZUREML_WORKSPACE_NAME": workspace,
        "REGIONS": Form(
            rf"app={facts.site.get('location')} data=\S+/{data}#location "
            rf"workspace=\S+/{workspace}#location",
            "the regions of app, data and workspace",
        ),
        "CLUSTER_IDENTITY": facts.cluster,
        "RESOURCE_MANAGER_ENDPOINT": "https://management.azure.com/",
        "RECONCILE_SCHEDULE": Form(NCRONTAB, "six fields of NCRONTAB"),
        "PYTHON_THREADPOOL_THREAD_COUNT": Form(
            "|".join(map(str, range(at_once, 33))),
            f"{at_once} (all that host.json allows at once) to 32",
        ),
        "RECORDS_CONTAINER": records[0].get(CONTAINER) if records else "",
        "RECORDS_DATASTORE": records[0].name if records else "",
        "PIPELINES_FOLDER": "/home/site/wwwroot/pipelines",
        "KEEP_COPIES_DAYS": Form(r"|[3-9]\d|[1-9]\d{2,}", "30 or more days, or empty"),
        r"\w+_URL": Form(r"|https://\S+", "an https URL, or empty"),
        "APPLICATIONINSIGHTS_CONNECTION_STRING": (
            insights.member("properties").member("ConnectionString") if insights else ""
        ),
        "APPLICATIONINSIGHTS_AUTHENTICATION_STRING": f"ClientId={facts.client};Authorization=AAD",
        CONNECTION_OF_SCHEDULER: (
            f"Endpoint={scheduler.member('properties').member('endpoint')};"
            f"Authentication=ManagedIdentity;ClientID={facts.client}"
            if scheduler
            else ""
        ),
        **_secret_references(facts, root),
    }


def _secret_references(facts: Facts, root: Path) -> dict[str, Any]:
    """Each secret is one that the hook makes, named after its setting."""
    made = {
        each
        for path in sorted((root / "infra" / "hooks").glob("*.py"))
        for each in re.findall(r'"([a-z0-9-]+-secret)"', path.read_text("utf-8"))
    }
    references: dict[str, Any] = {}
    for setting in facts.settings:
        if setting.endswith("_SECRET"):
            name = setting.lower().replace("_", "-")
            uri = f"https://{facts.secrets_vault}.vault.azure.net/secrets/{name}"
            references[setting] = (
                f"@Microsoft.KeyVault(SecretUri={uri})"
                if name in made
                else Form(r"(?!)", f"a reference to {name}, which no hook makes")
            )
    return references


def check(root: Path, deployed: Deployment) -> Iterator[Problem]:
    """Compare the settings of the app and the outputs for hooks with what is deployed."""
    facts = Facts(deployed)
    rules = expected_settings(facts, root)
    for setting, value in facts.settings.items():
        wanted = next((rules[each] for each in rules if re.fullmatch(each, setting)), None)
        if wanted is None:
            yield _setting_problem(facts, setting, "infra/check/app_rules.py has no rule for it")
        elif not isinstance(value, str) or wanted != value:
            yield _setting_problem(facts, setting, f"must be {wanted!r}, it is {value!r}")
    for path in OWN_IDENTITY:
        if facts.site.get(path) != facts.app:
            yield facts.site.problem(f"{path} must be the app's own identity", path)
    for each in facts.deployed.resources_of_type(WORKSPACE):
        if str(each.get("properties.keyVault")).endswith(f"/{facts.secrets_vault}"):
            message = "training code reads the workspace's vault: webhooks need one of their own"
            yield each.problem(message, "properties.keyVault")
    hub = facts.only("Microsoft.DurableTask/schedulers/taskHubs")
    name = json.loads((root / "host.json").read_text("utf-8"))["extensions"]["durableTask"][
        "hubName"
    ]
    if hub and hub.name != name:
        yield hub.problem(f"the task hub must be {name!r}, as in host.json", "name")
    yield from _check_promises(root, facts)
    yield from _check_outputs(facts)


def _check_promises(root: Path, facts: Facts) -> Iterator[Problem]:
    """Numbers that the page states are those of the files."""
    page = (root / PAGE).read_text("utf-8")
    scale = "properties.functionAppConfig.scaleAndConcurrency"
    deletes = "properties.policy.rules.0.definition.actions.version.delete"
    policy = facts.only(f"{ACCOUNT}/managementPolicies")
    for pattern, each, path, factor in (
        (r"at most (\d+) instances", facts.site, f"{scale}.maximumInstanceCount", 1),
        (r"instances of (\d+) GB", facts.site, f"{scale}.instanceMemoryMB", 1024),
        (r"HTTP: (\d+) requests", facts.site, f"{scale}.triggers.http.perInstanceConcurrency", 1),
        (r"kept for (\d+) days", policy, f"{deletes}.daysAfterCreationGreaterThan", 1),
    ):
        stated = re.search(pattern, page)
        if each and (stated is None or int(stated[1]) * factor != each.get(path)):
            said = stated[0] if stated else f"nothing like {pattern!r}"
            yield each.problem(f"{path} is {each.get(path)}, {PAGE} says {said!r}", path)
    for blobs in facts.deployed.resources_of_type(f"{ACCOUNT}/blobServices") if policy else ():
        if blobs.names[0] == (policy and policy.names[0]) and not blobs.get(
            "properties.isVersioningEnabled"
        ):
            yield blobs.problem(
                "isVersioningEnabled must be True: manifests name versions", "properties"
            )


def _setting_problem(facts: Facts, setting: str, message: str) -> Problem:
    file = facts.config.file
    for number, line in enumerate((file.root.text or b"").decode().splitlines(), 1):
        if line.strip().startswith(f"{setting}:"):
            return Problem(file.path.name, number, f"{setting} {message}")
    return facts.config.problem(f"{setting} {message}")


def _check_outputs(facts: Facts) -> Iterator[Problem]:
    """What hooks read, and the next provisioning, is what the app is told, too."""
    settings, main = facts.settings, facts.deployed.files[MAIN]
    landing = facts.datastores.get("landing")
    budget = facts.only("Microsoft.Consumption/budgets")
    wanted = {
        "AZURE_LOCATION": facts.site.get("location"),
        "AZURE_RESOURCE_GROUP": facts.site.scope.rpartition("/")[2],
        "AZURE_TENANT_ID": TENANT,
        "LANDFALL_BUDGET_START": budget.get("properties.timePeriod.startDate")
        if budget
        else Form(r"\d{4}-\d\d-01", "the first of a month"),
        "LANDFALL_EVENT_DELIVERY": "now",
        "LANDFALL_PROVISIONED_DELIVERY": "now" if facts.subscriptions else "later",
        "LANDFALL_APP_NAME": facts.site.name,
        "LANDFALL_URL": f"https://{facts.site.name}.azurewebsites.net",
        "LANDFALL_DATA_URL": settings.get("DataStorage__blobServiceUri"),
        "LANDFALL_LANDING_CONTAINER": landing.get(CONTAINER) if landing else None,
        "LANDFALL_VAULT_URL": f"https://{facts.secrets_vault}.vault.azure.net/",
        "LANDFALL_WORKSPACE_NAME": settings.get("AZUREML_WORKSPACE_NAME"),
        "LANDFALL_WORKSPACE_RESOURCE_GROUP": settings.get("AZUREML_RESOURCE_GROUP"),
        "LANDFALL_SUBSCRIPTION_ID": settings.get("AZUREML_SUBSCRIPTION_ID"),
    }
    for name, value in facts.deployed.outputs.items():
        if name in wanted and wanted[name] != value:
            yield main.problem(
                main.outputs[name], f"output {name} must be {wanted[name]!r}, it is {value!r}"
            )
        elif name not in wanted:
            yield main.problem(
                main.outputs[name], f"infra/check/app_rules.py has no rule for output {name}"
            )


def check_hooks(root: Path, deployed: Deployment, parameters: str) -> Iterator[Problem]:
    """Each value that a hook reads is an output of main.bicep; each output is read."""
    read: dict[str, tuple[str, int]] = {}
    for path in sorted((root / "infra" / "hooks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(
                r"(LANDFALL|AZURE)_[A-Z_]+", str(node.value)
            ):
                read.setdefault(str(node.value), (path.name, node.lineno))
    provided = deployed.outputs.keys() | OF_AZD | BY_HAND | {*re.findall(r"\$\{(\w+)", parameters)}
    for name, (file, line) in read.items():
        if name not in provided:
            yield Problem(file, line, f"{name} is read, but {MAIN} has no such output")
    main = deployed.files[MAIN]
    for name, node in main.outputs.items():
        if name.startswith("LANDFALL_") and name not in read and f"${{{name}" not in parameters:
            yield main.problem(node, f"output {name} is read by no hook and no parameter")


def page_rows(page: str, heading: str) -> Iterator[tuple[int, list[str]]]:
    """Line and cells, without backquotes, of the table below a heading."""
    is_below = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("#"):
            is_below = line.lstrip("# ") == heading
        elif is_below and line.startswith("| `"):
            yield number, [each.strip().replace("`", "") for each in line.strip("| ").split(" | ")]
