"""The champion of a pipeline: the model version in service, and how people change it.

It is recorded in tags of the versions, so that the studio shows it. A promotion is one write; an
interrupted one leaves nothing that changes an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found
from handlers.platform.clients import Clients
from handlers.platform.tags import all_versions, find_version, is_counted, tags_of
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import ChangeChampion
from orchestrations.errors import RolloutImpossible
from orchestrations.training.judging import lead_of_best

if TYPE_CHECKING:
    from azure.ai.ml.entities import Model as AzureMLModel

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Champion:
    """The registered model that a new one is compared with."""

    version: str
    path: str
    """URI of the model's folder."""
    lead: float = 0.0
    """How much better the best of the last champions was, on the gate's metric."""


class ChampionRefused(Exception):
    """A version cannot be promoted or rolled back; the message says why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        """The type of the problem document."""


def find_champion(clients: Clients, pipeline: Pipeline) -> Champion | None:
    """The model in service, see `choose_champion`; None if there has been none."""
    champion = choose_champion(active_versions(clients, pipeline.model.name))
    if champion is None:
        return None
    lead = 0.0
    if pipeline.gate.champion_margin < 0:
        chain = champions_before(champion, all_versions(clients, pipeline.model.name))
        gains = [float(tags_of(each).get(tags.GAIN, 0.0)) for each in chain]
        lead = lead_of_best(gains[: pipeline.gate.compare_with_last - 1])
    return Champion(version=str(champion.version), path=str(champion.path), lead=lead)


def active_versions(clients: Clients, name: str) -> Sequence[AzureMLModel]:
    """The versions of a model that are not archived."""
    return if_found(lambda: list(clients.ml.models.list(name))) or []


def choose_champion(models: Iterable[AzureMLModel]) -> AzureMLModel | None:
    """The champion among the versions of a model that are not archived. Pure.

    1. Among the versions with the tag `landfall.in-service` = `true`: the version that was put in
       service last (`landfall.in-service-since`), or else the newest.
    2. If a person put this version in service through Landfall (it has
       `landfall.in-service-since`), a version that was promoted by its metrics and registered later
       replaces it. A tag that a deployment maintains has no time: its version stays the champion.
    3. If no version has the tag: the newest version that was promoted by its metrics and not rolled
       back.

    Versions that Landfall did not register are left out, since they may have any layout, unless a
    person put them in service or rolled them out.
    """
    candidates = [each for each in models if is_ours(each)]
    promoted = [
        each
        for each in candidates
        if tags_of(each).get(tags.ROLE) != tags.CHALLENGER
        and tags.ROLLED_BACK_AT not in tags_of(each)
    ]
    in_service = [each for each in candidates if tags_of(each).get(tags.IN_SERVICE) == "true"]
    if not in_service:
        return max(promoted, key=_number, default=None)
    chosen = max(in_service, key=lambda each: (in_service_since(each) or _FIRST, _number(each)))
    since = in_service_since(chosen)
    if since is None:
        return chosen
    later = [each for each in promoted if (registered_at(each) or _FIRST) > since]
    return max(later, key=_number, default=chosen)


def promote(clients: Clients, pipeline: Pipeline, version: str, *, at: datetime) -> bool:
    """Put a version in service. Return False, and change nothing, if it is already the champion.

    Raises:
        ChampionRefused: see `find_active`.
    """
    models = active_versions(clients, pipeline.model.name)
    target = find_active(clients, pipeline, models, version)
    champion = choose_champion(models)
    if champion is target or in_service_since(target) == at:
        return False
    replaced = None if champion is None else str(champion.version)
    _put_in_service(clients, models, target, at=at, replaced=replaced)
    return True


def roll_back(clients: Clients, pipeline: Pipeline, version: str, *, at: datetime) -> str:
    """Take the champion out of service and put the version before it back in service.

    A repeated request completes an interrupted one and changes nothing else. Returns the version
    that is now in service.

    Raises:
        ChampionRefused: the version is not the champion, or there is no version before it.
    """
    models = active_versions(clients, pipeline.model.name)
    model, target = find_rollback(clients, pipeline, models, version)
    began_at = rolled_back_at(model)
    if began_at is None:
        began_at = at
        changes = {tags.ROLLED_BACK_AT: at.isoformat(), tags.IN_SERVICE: "false"}
        _tag(clients, model, changes)
    _put_in_service(clients, models, target, at=began_at)
    return str(target.version)


@activity
def change_champion(clients: Clients, request: ChangeChampion) -> Done:
    """Promote or roll back a version, as a person asked. Idempotent.

    If the rollout of a rolled-back version was rolled back meanwhile, the other version is the
    champion already, and nothing is changed.

    Raises:
        RolloutImpossible: the change is not possible any more, see `promote` and `roll_back`.
    """
    requested = request.change
    change = promote if requested.verb == "promote" else roll_back
    try:
        change(clients, request.pipeline, requested.version, at=requested.at)
    except ChampionRefused as refusal:
        champion = find_champion(clients, request.pipeline)
        if champion is None or champion.version != request.serving:
            raise RolloutImpossible(str(refusal)) from refusal
    return Done()


def find_rollback(
    clients: Clients, pipeline: Pipeline, models: Sequence[AzureMLModel], version: str
) -> tuple[AzureMLModel, AzureMLModel]:
    """A version that can be rolled back, or was, and the version before it.

    Raises:
        ChampionRefused: as in `roll_back`.
    """
    model = find_active(clients, pipeline, models, version)
    began_at = rolled_back_at(model)
    champion = choose_champion(models)
    if began_at is None and champion is not model:
        now = "there is none" if champion is None else f"version {champion.version} is"
        raise ChampionRefused(
            "not-the-champion", f"version {version} is not the champion of {pipeline.name}: {now}"
        )
    target = champion_to_restore(model, models)
    if target is None:
        raise ChampionRefused(
            "no-version-before",
            f"there is no version before {version} that could be in service: archive {version} to "
            "have no champion, or promote another version",
        )
    return model, target


def champion_to_restore(model: AzureMLModel, models: Sequence[AzureMLModel]) -> AzureMLModel | None:
    """The version that was in service before this one, or that this one was compared with. Pure."""
    by_version = {str(each.version): each for each in models}
    version = tags_of(model).get(tags.REPLACED) or tags_of(model).get(tags.CHAMPION)
    while version in by_version:
        candidate = by_version.pop(version)  # a version that names itself ends the chain
        if tags.ROLLED_BACK_AT not in tags_of(candidate) and candidate is not model:
            return candidate
        version = tags_of(candidate).get(tags.REPLACED) or tags_of(candidate).get(tags.CHAMPION)
    return None


def champions_before(
    champion: AzureMLModel, models: Iterable[AzureMLModel]
) -> Sequence[AzureMLModel]:
    """The champion, the champion that it was compared with, and so on, newest first."""
    by_version = {str(each.version): each for each in models}
    chain: list[AzureMLModel] = []
    version: str | None = str(champion.version)
    while version in by_version:
        model = by_version.pop(version)  # a version that names itself ends the chain
        chain.append(model)
        version = tags_of(model).get(tags.CHAMPION)
    return chain


def is_ours(model: AzureMLModel) -> bool:
    """Whether Landfall registered the version, or a person put it in service through Landfall."""
    found = tags_of(model)
    is_chosen = tags.IN_SERVICE_SINCE in found or found.get(tags.ROLLOUT_OUTCOME) == "live"
    return is_counted(model) and (tags.DATASET_VERSION in found or is_chosen)


def registered_at(model: AzureMLModel) -> datetime | None:
    """When the version was registered, by the service's clock."""
    context = getattr(model, "creation_context", None)
    return None if context is None else context.created_at


def in_service_since(model: AzureMLModel) -> datetime | None:
    """When a person put the version in service, if one did."""
    return _moment(tags_of(model), tags.IN_SERVICE_SINCE)


def rolled_back_at(model: AzureMLModel) -> datetime | None:
    """When a person took the version out of service, if one did."""
    return _moment(tags_of(model), tags.ROLLED_BACK_AT)


def _put_in_service(
    clients: Clients,
    models: Sequence[AzureMLModel],
    target: AzureMLModel,
    *,
    at: datetime,
    replaced: str | None = None,
) -> None:
    """Write the tags. The first write decides the champion; the others only tidy up for readers."""
    if max((in_service_since(each) or _FIRST for each in models), default=_FIRST) > at:
        return  # a person has changed the champion since
    changes = {tags.IN_SERVICE: "true", tags.IN_SERVICE_SINCE: at.isoformat()}
    if replaced is not None:
        changes[tags.REPLACED] = replaced
    _tag(clients, target, changes, without=tags.ROLLED_BACK_AT)
    for each in models:
        if each is not target and tags_of(each).get(tags.IN_SERVICE) == "true":
            _tag(clients, each, {tags.IN_SERVICE: "false"})


def _tag(
    clients: Clients, model: AzureMLModel, changes: dict[str, str], *, without: str = ""
) -> None:
    kept = {name: value for name, value in tags_of(model).items() if name != without}
    if kept | changes == tags_of(model):
        return
    model.tags = kept | changes
    clients.ml.models.create_or_update(model)


def find_active(
    clients: Clients, pipeline: Pipeline, models: Sequence[AzureMLModel], version: str
) -> AzureMLModel:
    """One of the versions, whoever registered it.

    Raises:
        ChampionRefused: there is no such version, it is archived, or it is not a whole number.
    """
    found = next((it for it in models if is_counted(it) and str(it.version) == version), None)
    if found is not None:
        return found
    name = pipeline.model.name
    if find_version(clients, name, version) is not None:
        raise ChampionRefused(
            "not-promotable",
            f"model {name}:{version} is archived: restore it in Azure ML first"
            if version.isdecimal()
            else f"model {name}:{version}: a version in service must be a whole number, such as 3",
        )
    raise ChampionRefused("unknown-model", f"there is no model {name}:{version}")


def _number(model: AzureMLModel) -> int:
    return int(str(model.version))


def _moment(found: Mapping[str, str], tag: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(found[tag])
    except (KeyError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
