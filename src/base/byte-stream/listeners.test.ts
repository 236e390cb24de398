import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import fc from "fast-check";
import { type ByteStreamEvents, StreamListeners } from "./index.ts";

const NAMES = ["data", "end", "drain", "finish", "hangUp", "close"] as const;
const CHUNK = new Uint8Array([1]);
const LISTENERS = 3;
/** Steps of one listener inside an event: changes of the listeners, and an end. */
const INSIDE = 6;

type Name = keyof ByteStreamEvents;

type Own = (chunk?: Uint8Array) => void;

interface Step {
  readonly act: "on" | "once" | "off" | "emit";
  readonly name: Name;
  readonly listener: number;
}

/** The common interface of both. */
interface Emitter {
  on(name: Name, listener: () => void): unknown;
  once(name: Name, listener: () => void): unknown;
  off(name: Name, listener: () => void): unknown;
  trigger(name: Name): void;
}

class Ours extends StreamListeners implements Emitter {
  trigger(name: Name): void {
    if (name === "data") this.emit(name, CHUNK);
    else this.emit(name);
  }
}

class Nodes extends EventEmitter implements Emitter {
  trigger(name: Name): void {
    this.emit(name, CHUNK);
  }
}

/** Runs the steps, and at each event the next step of the inner list. Returns the received events in order. */
function heard(emitter: Emitter, steps: readonly Step[], inside: readonly Step[]): string[] {
  const calls: string[] = [];
  const left = [...inside];
  const listeners = Array.from({ length: LISTENERS }, (_, at) => (): void => {
    calls.push(`${at} called`);
    const next = left.shift();
    if (next !== undefined) take(next);
  });
  const take = ({ act, name, listener }: Step): void => {
    calls.push(`${act} ${name}`);
    if (act === "emit") emitter.trigger(name);
    else emitter[act](name, listeners[listener] ?? assert.fail());
  };
  for (const step of steps) take(step);
  return calls;
}

test("StreamListeners: which listener is called, and in which order, is as with Node's emitters", () => {
  const step = fc.record({
    act: fc.constantFrom("on", "once", "off", "emit"),
    name: fc.constantFrom(...NAMES),
    listener: fc.nat(LISTENERS - 1),
  });
  const fewNames = fc.array(step.map((one): Step => ({ ...one, name: one.name === "end" ? "end" : "data" })));
  const steps = fc.oneof(fc.array(step), fewNames);
  fc.assert(
    fc.property(steps, fc.array(step, { maxLength: INSIDE }), (outside, inside) => {
      assert.deepEqual(heard(new Ours(), outside, inside), heard(new Nodes(), outside, inside));
    }),
    { numRuns: 500 },
  );
});

test("StreamListeners: the owner gets each event before the listeners, but none that began before it was the owner", () => {
  const emitter = new Ours();
  const calls: string[] = [];
  const own = (name: Name) => (chunk?: Uint8Array) => {
    calls.push(`owner ${name}`);
    if (name === "data") assert.equal(chunk, CHUNK);
  };
  const [onData, onEnd, onDrain, onFinish, onHangUp, onClose] = NAMES.map(own) as [Own, Own, Own, Own, Own, Own];
  emitter.once("data", () => {
    calls.push("first");
    emitter.setOwner({ onData, onEnd, onDrain, onFinish, onHangUp, onClose });
  });
  emitter.trigger("data");
  for (const name of NAMES) emitter.on(name, () => calls.push(`listener ${name}`));
  for (const name of NAMES) emitter.trigger(name);
  assert.deepEqual(calls, ["first", ...NAMES.flatMap((name) => [`owner ${name}`, `listener ${name}`])]);
});

test("StreamListeners: an event without a listener is no fault, bytes are passed on unchanged, and an error of a listener is thrown", () => {
  const emitter = new Ours();
  for (const name of NAMES) emitter.trigger(name);
  let got: Uint8Array | undefined;
  emitter.on("data", (chunk) => {
    got = chunk;
  });
  emitter.trigger("data");
  assert.equal(got, CHUNK);
  emitter.on("end", () => {
    throw new Error("listener");
  });
  assert.throws(() => emitter.trigger("end"), /^Error: listener$/);
});
