// Node's @azure/storage-blob: STORAGE is a connection string. Events of the container `events` come
// to the queue `events` of SERVICE_BUS.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, test } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";
import { BlobSASPermissions, BlobServiceClient, BlockBlobClient } from "@azure/storage-blob";

const service = BlobServiceClient.fromConnectionString(process.env.STORAGE);
const container = service.getContainerClient("landing");
const bus = new ServiceBusClient(process.env.SERVICE_BUS);
after(() => bus.close());

test("a blob with metadata, tier and conditions", async () => {
  const blob = container.getBlockBlobClient("folder/one é.txt");
  const put = await blob.upload("text", 4, {
    metadata: { a: "b" },
    blobHTTPHeaders: { blobContentType: "text/plain" },
  });
  const read = await blob.download();
  assert.equal(read.contentType, "text/plain");
  assert.deepEqual(read.metadata, { a: "b" });
  assert.equal((await blob.downloadToBuffer()).toString(), "text");
  const again = blob.upload("x", 1, { conditions: { ifNoneMatch: "*" } });
  await assert.rejects(again, (error) => error.statusCode === 409);
  await blob.upload("x", 1, { conditions: { ifMatch: put.etag } });
  await blob.setAccessTier("Cool");
  assert.equal((await blob.getProperties()).accessTier, "Cool");
  const range = await blob.downloadToBuffer(0, 1);
  assert.equal(range.toString(), "x");
});

test("staged blocks, of a stream of 9 MiB", async () => {
  const content = randomBytes(9 * 2 ** 20);
  const blob = container.getBlockBlobClient("large");
  await blob.uploadData(content, { blockSize: 2 ** 20, maxSingleShotSize: 2 ** 20, concurrency: 4 });
  assert.ok((await blob.downloadToBuffer()).equals(content));
});

test("a listing by pages and by folders", async () => {
  for (const name of ["list/a/1", "list/a/2", "list/b"]) {
    await container.getBlockBlobClient(name).upload("", 0);
  }
  const names = [];
  for await (const page of container.listBlobsFlat({ prefix: "list/" }).byPage({ maxPageSize: 2 })) {
    names.push(...page.segment.blobItems.map((item) => item.name));
  }
  assert.deepEqual(names, ["list/a/1", "list/a/2", "list/b"]);
  const folders = [];
  for await (const item of container.listBlobsByHierarchy("/", { prefix: "list/" })) {
    folders.push(`${item.kind} ${item.name}`);
  }
  assert.deepEqual(folders.sort(), ["blob list/b", "prefix list/a/"]);
});

test("a copy, a lease and a shared access signature", async () => {
  const source = container.getBlockBlobClient("source");
  await source.upload("copied", 6);
  const target = container.getBlockBlobClient("target");
  await target.syncCopyFromURL(source.url).catch(async () => {
    const copy = await target.beginCopyFromURL(source.url);
    await copy.pollUntilDone();
  });
  assert.equal((await target.downloadToBuffer()).toString(), "copied");
  const lease = target.getBlobLeaseClient();
  await lease.acquireLease(15);
  await assert.rejects(target.delete(), (error) => error.statusCode === 412);
  await lease.releaseLease();
  const expiresOn = new Date(Date.now() + 60_000);
  const url = await target.generateSasUrl({ permissions: BlobSASPermissions.parse("r"), expiresOn });
  const guest = new BlockBlobClient(url);
  assert.equal((await guest.downloadToBuffer()).toString(), "copied");
  await assert.rejects(guest.delete(), (error) => error.statusCode === 403);
});

test("an upload and a deletion have their events", async () => {
  const blob = service.getContainerClient("events").getBlockBlobClient("noted");
  await blob.upload("x", 1);
  await blob.delete();
  const receiver = bus.createReceiver("blob-events", { receiveMode: "receiveAndDelete" });
  const types = [];
  while (types.length < 2) {
    const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 10_000 });
    assert.ok(message, "an event is missing");
    const event = typeof message.body === "string" ? JSON.parse(message.body) : message.body;
    types.push(event.eventType);
  }
  assert.deepEqual(types.sort(), ["Microsoft.Storage.BlobCreated", "Microsoft.Storage.BlobDeleted"]);
});
