import assert from "node:assert/strict";
import { test } from "node:test";
import { Http2Code } from "./frames.ts";
import { STREAM_TABLE, type StreamEvent, type StreamState } from "./stream-states.ts";

const STATES: readonly StreamState[] = ["idle", "open", "half-closed-local", "half-closed-remote", "closed"];
const EVENTS: readonly StreamEvent[] = [
  "send-headers",
  "send-data",
  "send-end",
  "send-reset",
  "receive-headers",
  "receive-data",
  "receive-end",
  "receive-reset",
  "receive-window-update",
];

test("stream states: the table is total, and leads only to its own states", () => {
  assert.deepEqual(Object.keys(STREAM_TABLE), STATES);
  for (const state of STATES) {
    assert.deepEqual(Object.keys(STREAM_TABLE[state]), EVENTS, state);
    for (const event of EVENTS) assert.ok(STATES.includes(STREAM_TABLE[state][event][0]), `${state} ${event}`);
  }
});

test("stream states: a closed stream stays closed, and a frame that is not allowed changes nothing", () => {
  for (const state of STATES) {
    for (const event of EVENTS) {
      const [next, verdict] = STREAM_TABLE[state][event];
      if (verdict !== undefined || state === "closed") assert.equal(next, state, `${state} ${event}`);
    }
  }
});

test("stream states: each side ends once, and both ends or a reset close the stream", () => {
  const run = (...events: readonly StreamEvent[]): StreamState =>
    events.reduce<StreamState>((state, event) => STREAM_TABLE[state][event][0], "idle");
  assert.equal(run("send-headers", "send-end", "receive-headers", "receive-end"), "closed");
  assert.equal(run("receive-headers", "receive-end", "send-headers", "send-end"), "closed");
  assert.equal(run("receive-headers", "receive-end", "send-end"), "closed");
  assert.equal(run("send-headers", "receive-reset"), "closed");
  assert.equal(run("receive-headers", "send-reset"), "closed");
  assert.equal(run("send-headers", "send-end", "send-data"), "half-closed-local");
});

test("stream states: the verdicts of RFC 9113 section 5.1", () => {
  const verdict = (state: StreamState, event: StreamEvent) => STREAM_TABLE[state][event][1];
  for (const event of ["receive-data", "receive-reset", "receive-window-update"] as const) {
    assert.deepEqual(verdict("idle", event), { kind: "connection", code: Http2Code.protocolError });
  }
  for (const event of ["receive-data", "receive-headers"] as const) {
    assert.deepEqual(verdict("half-closed-remote", event), { kind: "stream", code: Http2Code.streamClosed });
    assert.deepEqual(verdict("closed", event), { kind: "stream", code: Http2Code.streamClosed });
    assert.equal(verdict("half-closed-local", event), undefined);
  }
  for (const event of ["receive-reset", "receive-window-update"] as const) {
    assert.deepEqual(verdict("closed", event), { kind: "ignored" });
    assert.equal(verdict("half-closed-remote", event), undefined);
  }
});
