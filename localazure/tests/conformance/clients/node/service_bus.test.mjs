// Node's @azure/service-bus against the local broker: SERVICE_BUS is its connection string.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ServiceBusClient, delay } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICE_BUS);
after(() => client.close());

async function one(queue, options) {
  const receiver = client.createReceiver(queue, options);
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
  assert.ok(message, `nothing came from ${queue}`);
  return { message, receiver };
}

async function send(queue, ...messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages.length === 1 ? messages[0] : messages);
  await sender.close();
}

test("a message keeps its fields", async () => {
  const sent = {
    body: { some: "object" },
    messageId: "one",
    subject: "subject",
    correlationId: "correlation",
    contentType: "application/json",
    applicationProperties: { number: 7, text: "é", flag: true },
  };
  await send("fields", sent);
  const { message, receiver } = await one("fields");
  assert.deepEqual(message.body, sent.body);
  for (const name of ["messageId", "subject", "correlationId", "contentType"]) {
    assert.equal(message[name], sent[name]);
  }
  assert.deepEqual({ ...message.applicationProperties }, sent.applicationProperties);
  assert.ok(message.lockedUntilUtc > new Date());
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
  await receiver.close();
});

test("messages without an id reach a consumer, which can be closed", async () => {
  await send("batch", ...[1, 2, 3].map((body) => ({ body })));
  const receiver = client.createReceiver("batch");
  const bodies = [];
  const errors = [];
  const ids = new Set();
  const consumer = receiver.subscribe({
    processMessage: async (message) => {
      bodies.push(message.body);
      ids.add(message.messageId);
    },
    processError: async ({ error }) => errors.push(error),
  });
  while (bodies.length + errors.length < 3) await delay(20);
  await consumer.close();
  await receiver.close();
  assert.deepEqual(errors, []);
  assert.deepEqual(bodies.sort(), [1, 2, 3]);
  assert.equal(ids.size, 3);
});

test("abandon modifies properties and counts deliveries", async () => {
  await send("abandon", { body: "x" });
  const { message, receiver } = await one("abandon");
  await receiver.abandonMessage(message, { why: "busy" });
  const [again] = await receiver.receiveMessages(1);
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.why, "busy");
  await receiver.completeMessage(again);
  await receiver.close();
});

test("a dead letter has its reason", async () => {
  await send("dead", { body: "x" });
  const { message, receiver } = await one("dead");
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "bad",
    deadLetterErrorDescription: "very bad",
  });
  const dead = await one("dead", { subQueueType: "deadLetter" });
  assert.equal(dead.message.deadLetterReason, "bad");
  assert.equal(dead.message.deadLetterErrorDescription, "very bad");
  await dead.receiver.completeMessage(dead.message);
  await dead.receiver.close();
  await receiver.close();
});

test("a deferred message is received by its number", async () => {
  await send("defer", { body: "x" });
  const { message, receiver } = await one("defer");
  await receiver.deferMessage(message);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "x");
  await receiver.completeMessage(deferred);
  await receiver.close();
});

test("scheduled messages come when due, or are cancelled", async () => {
  const sender = client.createSender("schedule");
  const due = new Date(Date.now() + 1000);
  const [first, second] = await sender.scheduleMessages([{ body: 1 }, { body: 2 }], due);
  await sender.cancelScheduledMessages(second);
  const { message, receiver } = await one("schedule");
  assert.equal(message.body, 1);
  assert.ok(new Date() >= due);
  assert.equal(message.scheduledEnqueueTimeUtc.getTime(), due.getTime());
  assert.ok(first.toString() !== second.toString());
  await receiver.completeMessage(message);
  assert.deepEqual(await receiver.peekMessages(1), []);
  await receiver.close();
  await sender.close();
});

test("a lock is renewed", async () => {
  await send("renew", { body: "x" });
  const { message, receiver } = await one("renew");
  const before = message.lockedUntilUtc;
  await delay(20);
  assert.ok((await receiver.renewMessageLock(message)) > before);
  await receiver.completeMessage(message);
  await receiver.close();
});

test("receive and delete", async () => {
  await send("delete", { body: "x" });
  const { message, receiver } = await one("delete", { receiveMode: "receiveAndDelete" });
  assert.equal(message.body, "x");
  await receiver.close();
});

test("a subscription gets what its rule matches", async () => {
  await send("topic", { body: "not", subject: "b" }, { body: "yes", subject: "a" });
  const receiver = client.createReceiver("topic", "only-a");
  const [message] = await receiver.receiveMessages(2, { maxWaitTimeInMs: 5_000 });
  assert.equal(message.body, "yes");
  await receiver.completeMessage(message);
  await receiver.close();
});

test("a missing entity and a session are refused", async () => {
  await assert.rejects(send("nowhere", { body: "x" }));
  await assert.rejects(client.acceptSession("fields", "session"));
});
