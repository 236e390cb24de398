import assert from "node:assert/strict";
import type { ByteStream } from "#base/byte-stream";
import { StreamSocket } from "../stream-socket.ts";

/** The acts of a test on one end of a connection. */
export type Act =
  | { readonly kind: "write"; readonly bytes: number }
  /** One write of several chunks, on streams that have it. */
  | { readonly kind: "write-all"; readonly sizes: readonly number[] }
  | { readonly kind: "end" | "pause" | "resume" | "destroy" | "reset" };

/** For each event, the acts of its listener, in order: each event runs the next act. */
export type Inside = { readonly [Event in "data" | "end" | "drain" | "finish" | "hangUp"]: readonly Act[] };

/** One end of a connection: records what it sent, checks each byte that it receives, and the order of events. */
export class Witness {
  readonly stream: ByteStream;
  readonly #salt: number;
  readonly #heardSalt: number;
  readonly #inside: { readonly [Event in keyof Inside]: Act[] };
  /** Bytes. */
  said = 0;
  heard = 0;
  /** All events except data and drain, in order. */
  readonly events: string[] = [];
  /** True after the test itself has reset the connection. */
  hasCut = false;
  #hasEnded = false;
  #isPaused = true;
  #isDrainOwed = false;

  constructor(stream: ByteStream, salts: readonly [number, number], inside: Inside) {
    this.stream = stream;
    [this.#salt, this.#heardSalt] = salts;
    this.#inside = {
      data: [...inside.data],
      end: [...inside.end],
      drain: [...inside.drain],
      finish: [...inside.finish],
      hangUp: [...inside.hangUp],
    };
    stream.on("data", (chunk) => this.#received(chunk));
    for (const event of ["end", "drain", "finish", "hangUp"] as const) stream.on(event, () => this.#onEvent(event));
    stream.on("close", () => this.#onEvent("close"));
  }

  get isClosed(): boolean {
    return this.events.at(-1) === "close";
  }

  /** True after an end or a reset: no more bytes can be sent. */
  get isSilent(): boolean {
    return this.#hasEnded || this.hasCut;
  }

  do(act: Act): void {
    switch (act.kind) {
      case "write":
        this.#write([act.bytes]);
        return;
      case "write-all":
        this.#write(act.sizes);
        return;
      case "end":
        this.#hasEnded = true;
        this.stream.end();
        return;
      case "pause":
        this.#isPaused = true;
        this.stream.pause();
        return;
      case "resume":
        this.#isPaused = false;
        this.stream.resume();
        return;
      case "destroy":
      case "reset":
        this.hasCut = true;
        this.stream[act.kind]();
    }
  }

  #write(sizes: readonly number[]): void {
    if (this.isSilent || this.stream.destroyed) return;
    const chunks = sizes.map((size) => this.#chunk(size));
    const goes =
      this.stream instanceof StreamSocket && chunks.length > 1
        ? this.stream.writeAll(chunks)
        : chunks.map((chunk) => this.stream.write(chunk)).at(-1);
    // The test may use the chunks again.
    for (const chunk of chunks) chunk.fill(0);
    if (goes === false) this.#isDrainOwed = true;
  }

  #chunk(length: number): Buffer {
    const chunk = Buffer.alloc(length);
    for (let at = 0; at < length; at += 1) chunk[at] = byteAt(this.said + at, this.#salt);
    this.said += length;
    return chunk;
  }

  #received(chunk: Uint8Array): void {
    assert.equal(this.#isPaused, false, "data while paused");
    assert.ok(chunk.length > 0, "an empty chunk");
    assert.ok(!this.events.includes("end") && !this.isClosed, "data behind the end");
    for (const [at, byte] of chunk.entries())
      if (byte !== byteAt(this.heard + at, this.#heardSalt)) assert.fail(`a wrong byte at ${this.heard + at}`);
    this.heard += chunk.length;
    this.#next("data");
  }

  #onEvent(event: "end" | "drain" | "finish" | "hangUp" | "close"): void {
    assert.equal(this.isClosed, false, `${event} after close`);
    if (event === "drain") {
      assert.ok(this.#isDrainOwed, "a drain that nobody waits for");
      this.#isDrainOwed = false;
    } else {
      assert.ok(!this.events.includes(event), `${event} twice`);
      this.events.push(event);
    }
    if (event === "hangUp") assert.ok(!this.events.includes("end"), "a hang-up after the end");
    if (event === "end") assert.equal(this.stream.readableEnded, true);
    if (event === "finish") assert.equal(this.stream.writableFinished, true);
    if (event === "close") assert.ok(this.stream.closed && this.stream.destroyed);
    else this.#next(event);
  }

  #next(event: keyof Inside): void {
    const act = this.#inside[event].shift();
    if (act !== undefined) this.do(act);
  }
}

/** Coprime to all chunk sizes that are powers of two, so that a lost or repeated chunk is detected. */
function byteAt(at: number, salt: number): number {
  return (at * 7 + (at >>> 8) * 13 + salt) & 0xff;
}
