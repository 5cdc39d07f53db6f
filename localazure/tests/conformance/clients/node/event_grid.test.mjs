// Node's @azure/eventgrid: EVENT_GRID is the service, EVENT_GRID_KEY_<topic> a topic's key. What is
// published comes to the queue `events` of SERVICE_BUS.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AzureKeyCredential, EventGridPublisherClient } from "@azure/eventgrid";
import { ServiceBusClient } from "@azure/service-bus";

const bus = new ServiceBusClient(process.env.SERVICE_BUS);
const receiver = bus.createReceiver("events", { receiveMode: "receiveAndDelete" });
after(() => bus.close());

function publisher(topic, schema, key = process.env[`EVENT_GRID_KEY_${topic}`]) {
  const options = { allowInsecureConnection: true };
  const endpoint = `${process.env.EVENT_GRID}/topics/${topic}/api/events`;
  return new EventGridPublisherClient(endpoint, schema, new AzureKeyCredential(key), options);
}

async function delivered() {
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
  assert.ok(message, "nothing was delivered");
  return typeof message.body === "string" ? JSON.parse(message.body) : message.body;
}

test("a CloudEvent is delivered", async () => {
  const event = { type: "t", source: "/s", id: "cloud", data: { n: 1 }, extensionAttributes: { ext: "x" } };
  await publisher("cloud", "CloudEvent").send([event]);
  const found = await delivered();
  assert.deepEqual([found.id, found.type, found.data, found.ext], ["cloud", "t", { n: 1 }, "x"]);
});

test("an Event Grid event is delivered", async () => {
  const event = { eventType: "t", subject: "s", id: "grid", data: { n: 1 }, dataVersion: "1" };
  await publisher("grid", "EventGrid").send([event]);
  const found = await delivered();
  assert.deepEqual([found.id, found.eventType, found.data], ["grid", "t", { n: 1 }]);
});

test("a wrong key is refused", async () => {
  const event = { type: "t", source: "/s", data: {} };
  const refused = publisher("cloud", "CloudEvent", "d3Jvbmc=").send([event]);
  await assert.rejects(refused, (error) => error.statusCode === 401);
});
