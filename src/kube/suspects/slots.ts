import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { fitShape, type Shape } from "#kube/shape";
import type { Pass } from "./suspects.ts";

/** The size of a slot, in bytes. The names of an object have 317 characters at most. */
const SLOT_BYTES = 1024;
/** The maximum number of passes that are recorded at once. */
export const SLOTS = 128;
/** The place of the step that is under way: after those of the passes. */
const STEP_AT = SLOTS * SLOT_BYTES;

const SHAPE: Shape = {
  fields: { boot: "ascii", controller: "string", key: "string", version: "string", atMs: "number" },
  required: ["boot", "controller", "key", "version", "atMs"],
};

const FREE = Buffer.alloc(1, "-");
const LINE_FEED = 10;

/**
 * The passes that are under way, in a file: each in a place of its own, so that a pass costs one write at its beginning and one of a byte at its end. What was written
 * stays when the process is killed. Methods throw errors of Node.
 */
export class Slots {
  readonly #fd: number;
  readonly #boot: string;
  readonly #free: number[];
  /** The bytes of the step that was written last; those after its line feed are of earlier ones. */
  readonly #step = Buffer.alloc(SLOT_BYTES);

  /** Empties the file. `boot` tells this boot of the machine from others. */
  constructor(path: string, boot: string) {
    this.#fd = openSync(path, "w", 0o600);
    this.#boot = boot;
    this.#free = Array.from({ length: SLOTS }, (_, at) => SLOTS - 1 - at);
  }

  /** Records a pass; returns its slot. `undefined`: no slot is free, or the pass does not fit in one. */
  take(pass: Pass): number | undefined {
    const text = this.#textOf(pass);
    if (Buffer.byteLength(text) > SLOT_BYTES) return undefined;
    const slot = this.#free.pop();
    if (slot === undefined) return undefined;
    const bytes = Buffer.alloc(SLOT_BYTES, " ");
    bytes.write(text);
    writeSync(this.#fd, bytes, 0, SLOT_BYTES, slot * SLOT_BYTES);
    return slot;
  }

  /** Frees a slot. */
  free(slot: number): void {
    this.#free.push(slot);
    writeSync(this.#fd, FREE, 0, 1, slot * SLOT_BYTES);
  }

  /** Records a step in place of the one before. One that does not fit is not recorded. */
  step(pass: Pass): void {
    const text = this.#textOf(pass);
    // A character has at most three bytes in UTF-8 for each unit of its length.
    if (text.length * 3 > SLOT_BYTES && Buffer.byteLength(text) > SLOT_BYTES) {
      this.freeStep();
      return;
    }
    writeSync(this.#fd, this.#step, 0, this.#step.write(text), STEP_AT);
  }

  /** No step is under way. */
  freeStep(): void {
    writeSync(this.#fd, FREE, 0, 1, STEP_AT);
  }

  /** Nothing is under way any more. */
  empty(): void {
    ftruncateSync(this.#fd, 0);
  }

  close(): void {
    closeSync(this.#fd);
  }

  #textOf({ controller, key, version, atMs }: Pass): string {
    return `${JSON.stringify({ boot: this.#boot, controller, key, version, atMs })}\n`;
  }
}

/**
 * The passes in a file of {@link Slots} that were under way in this boot. A place that cannot be read has none. A step that was under way is the only one: nothing
 * else runs during a step.
 */
export function readSlots(path: string, boot: string): readonly Pass[] {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
  const step = passIn(bytes.subarray(STEP_AT, STEP_AT + SLOT_BYTES));
  if (step?.boot === boot) return [step];
  const count = Math.min(Math.ceil(bytes.length / SLOT_BYTES), SLOTS);
  return Array.from({ length: count }, (_, at) => passIn(bytes.subarray(at * SLOT_BYTES, (at + 1) * SLOT_BYTES)))
    .filter((pass) => pass?.boot === boot)
    .flatMap((pass) => (pass === undefined ? [] : [pass]));
}

function passIn(bytes: Buffer): (Pass & { readonly boot: string }) | undefined {
  let value: unknown;
  const end = bytes.indexOf(LINE_FEED);
  try {
    value = JSON.parse(bytes.toString("utf8", 0, end < 0 ? bytes.length : end));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  return fitShape(value, SHAPE) === undefined ? (value as Pass & { readonly boot: string }) : undefined;
}
