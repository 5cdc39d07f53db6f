"""Function chaining: each activity's result is the next one's input."""

from __future__ import annotations

from typing import Any

import azure.durable_functions as df

app = df.DFApp()


@app.orchestration_trigger(context_name="context")  # pyright: ignore[reportUntypedFunctionDecorator] - the SDK is untyped
def order(context: Any) -> Any:
    wanted = context.get_input()
    price = yield context.call_activity("look_up_price", wanted["article"])
    paid = yield context.call_activity_with_retry(
        "charge", df.RetryOptions(5, 3), {"amount": price * wanted["count"]}
    )
    receipt = yield context.call_activity("send_receipt", {"paid": paid, "to": wanted["to"]})
    context.set_custom_status({"receipt": receipt})
    return receipt


@app.activity_trigger(input_name="article")
def look_up_price(article: str) -> float:
    return float(len(article))


charged: list[Any] = []


@app.activity_trigger(input_name="charge")
def charge(charge: Any) -> Any:
    charged.append(charge)
    if len(charged) == 1:
        raise ConnectionError("the bank does not answer")
    return charge


@app.activity_trigger(input_name="receipt")
def send_receipt(receipt: Any) -> str:
    return f"{receipt['paid']['amount']} from {receipt['to']}"
