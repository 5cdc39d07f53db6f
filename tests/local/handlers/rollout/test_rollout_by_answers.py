"""The orchestrator and its real activities: a rollout that is judged by what the models answer."""

from __future__ import annotations

import json
from typing import Any

import requests

from handlers.platform.activity_adapter import functions
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import RolloutInput, RolloutRequest, RolloutStatus
from orchestrations.contracts.runs import Model
from orchestrations.names import deployment_name, rollout_id
from orchestrations.platform.activities import RESULT_KEY
from orchestrations.rollout.rollout import rollout
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.rollout.shop import DEPLOYMENT, Shop
from tests.unit.orchestrations.driver import Driver

SCRIPT = """
import json, os, pathlib

def init():
    global weight
    folder = pathlib.Path(os.environ["AZUREML_MODEL_DIR"]) / "model"
    weight = float((folder / "weight.txt").read_text())

def run(data):
    asked = json.loads(data)
    return {"request": asked["request"], "price": asked["x"] / weight}
"""
COLLECTING = """
data_collector: {collections: {response: {enabled: 'true'}}}
request_settings: {max_concurrent_requests_per_instance: 64}
"""
PRICE = {"field": "price", "collection": "response"}
DEPLOY = {
    "smoke_request": None,
    "steps": [{"mirror": 50, "bake_minutes": 0.1}, {"traffic": 100, "bake_minutes": 0}],
    "guards": {
        "minimum_requests": 5,
        "answers": [
            {**PRICE, "metric": "mean", "max": 1000, "max_change": 1000},
            {**PRICE, "metric": "agreement", "id": "request", "min": 0.9},
            {**PRICE, "metric": "accuracy", "id": "request", "labels": "feedback/", "min": 0.5},
        ],
    },
    "keep_previous_hours": 0,
}


class Customers:
    """Send requests to an endpoint, and say what would have been right once that is known."""

    def __init__(self, cloud: Cloud, shop: Shop) -> None:
        self.shop = shop
        endpoints: Any = shop.clients.ml.online_endpoints
        self.uri = str(endpoints.get(shop.endpoint).scoring_uri)
        self.key = str(endpoints.get_keys(shop.endpoint).primary_key)
        self.http = requests.Session()
        self.http.verify = str(cloud.environment.ca_bundle)
        self.asked = 0
        self.labels_are_known = False

    def ask(self) -> None:
        for _ in range(12):
            self.asked += 1
            answer = self.http.post(
                self.uri,
                json={"request": self.asked, "x": self.asked},
                headers={"Authorization": f"Bearer {self.key}"},
                timeout=30,
            )
            assert answer.status_code == 200, answer.text
        if self.labels_are_known:
            self._upload_labels()

    def _upload_labels(self) -> None:
        labels = [{"request": n, "price": n / 2} for n in range(1, self.asked + 1)]
        content = "".join(f"{json.dumps(each)}\n" for each in labels)
        self.shop.upload("landing", "feedback/labels.jsonl", content)


def roll_out(shop: Shop, customers: Customers, model: Model) -> RolloutStatus:
    """Run the orchestrator; customers ask while it observes."""
    activities: dict[str, Any] = {each.__name__: each for each in functions(shop.clients)}
    observe = activities["observe_rollout"]

    def observe_customers(given: Any) -> Any:
        customers.ask()
        return observe(given)

    def deploy(given: Any) -> Any:
        shop.deploy(model)
        return activities["ensure_deployment"](given)

    def publish(_: Any) -> Any:
        return {RESULT_KEY: Done().to_dict()}

    changed = {
        "observe_rollout": observe_customers,
        "ensure_deployment": deploy,
        "publish_notification": publish,
    }
    driver = Driver(activities={**activities, **changed}, orchestrators={"rollout": rollout})
    request = RolloutRequest(pipeline=shop.pipeline, model=model, run="run-1")
    name = rollout_id(shop.endpoint, model.version)
    instance = driver.start("rollout", name, RolloutInput(request=request).to_dict())
    driver.run()
    assert instance.error is None
    return RolloutStatus.from_dict(instance.output)


def test_a_model_that_answers_otherwise_is_taken_back_though_no_request_fails(
    cloud: Cloud,
) -> None:
    shop = Shop(cloud, script=SCRIPT, deployment=DEPLOYMENT + COLLECTING, deploy=DEPLOY)
    shop.ensure()
    first = shop.model("1", "2")
    assert shop.deploy(first).state == "ready"
    shop.set({deployment_name("1"): 100})
    customers = Customers(cloud, shop)
    with customers.http:
        worse = roll_out(shop, customers, shop.model("2", "4"))
        assert worse.state == "rolled_back"
        assert "agreement on price is 0 of" in (worse.reason or ""), worse.reason
        assert worse.error_rate == 0
        assert shop.ensure().traffic == {"model-1": 100}
        customers.labels_are_known = True
        alike = roll_out(shop, customers, shop.model("3", "2"))
    assert (alike.state, alike.reason) == ("finished", None)
    assert alike.answers["accuracy of price"] == 1
    assert shop.ensure().traffic == {"model-3": 100}
