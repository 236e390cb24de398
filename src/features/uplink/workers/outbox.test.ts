import assert from "node:assert/strict";
import { test } from "node:test";
import type { Note } from "./messages.ts";
import { Outbox } from "./outbox.ts";

test("Outbox: a batch counts requests, and says nothing of an uplink that it has just said", () => {
  const batches: Note[][] = [];
  const outbox = new Outbox((notes) => batches.push(JSON.parse(notes) as Note[]), []);
  const { evidence, record } = outbox;
  for (let round = 0; round < 3; round += 1) {
    record({ kind: "request", count: 1 });
    evidence.dialSucceeded("wan0", "a:443");
    evidence.dialSucceeded("wan1", "a:443");
  }
  evidence.dialFailed("wan0", "a:443", "timeout", "too late");
  evidence.dialFailed("wan0", "a:443", "unreachable", "no route");
  evidence.dialSucceeded("wan0", "a:443");
  evidence.dialSucceeded("wan0", "b:443");
  evidence.firstByte("wan0", "b:443");
  outbox.flush();
  record({ kind: "request", count: 1 });
  evidence.firstByte("wan0", "b:443");
  outbox.flush();
  outbox.flush();
  const short = (note: Note): string =>
    note.kind === "evidence"
      ? `${note.call.call} ${note.call.uplink} ${note.call.destination}`
      : note.kind === "stats" && note.event.kind === "request"
        ? `${note.event.count} requests`
        : note.kind;
  assert.deepEqual(
    batches.map((notes) => notes.map(short)),
    [
      [
        "dialSucceeded wan0 a:443",
        "dialSucceeded wan1 a:443",
        "dialFailed wan0 a:443",
        "dialFailed wan0 a:443",
        "dialSucceeded wan0 a:443",
        "dialSucceeded wan0 b:443",
        "firstByte wan0 b:443",
        "3 requests",
      ],
      ["firstByte wan0 b:443", "1 requests"],
    ],
  );
});

test("Outbox: requests alone are told in time", async () => {
  const told = Promise.withResolvers<string>();
  new Outbox(told.resolve, []).record({ kind: "request", count: 2 });
  assert.deepEqual(JSON.parse(await told.promise), [{ kind: "stats", event: { kind: "request", count: 2 } }]);
});
