import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { replaceFile } from "#base/file";
import type { Logger } from "#base/log";
import { fitShape, type Shape } from "#kube/shape";
import { readSlots, Slots } from "./slots.ts";
import { type Aside, afterEnd, afterFault, asideFor, type PassKey, type Suspect, suspectOf } from "./suspects.ts";

/** The names of the files. */
const UNDER_WAY = "under-way";
const SUSPECTS = "suspects.json";

/** The pause before a suspect is tried again while another one is under way, milliseconds. */
const TURN_MS = 100;
/** A suspect's turn ends after this time at the latest, milliseconds: one that waits for an API server without an answer must not keep the others waiting. */
const LONGEST_TURN_MS = 5000;
/**
 * The record of a pass stays for this time after its end, milliseconds: what a pass has begun may end the process a moment later. One that took
 * {@link LONG_MS} may have blocked the process so long that the Lease is lost, which is known only after an answer of the API server.
 */
const KEPT_MS = 50;
const LONG_MS = 1000;
const LONG_KEPT_MS = 5000;
/** The maximum length of the text of a fault, characters. */
const MAX_FAULT = 200;

const TIME: Shape = { fields: { atMs: "number", version: "string" }, required: ["atMs", "version"] };
const FILE: Shape = {
  fields: {
    suspects: {
      list: {
        fields: {
          controller: "string",
          key: "string",
          ends: { list: TIME },
          aside: {
            fields: { version: "string", untilMs: "number", times: "number", changes: "number", fault: "string" },
            required: ["version", "untilMs", "times", "changes"],
          },
        },
        required: ["controller", "key", "ends"],
      },
    },
  },
  required: ["suspects"],
};

/** A key is not reconciled now for this reason. */
export interface Held {
  /** It should be tried again after this time, in milliseconds. */
  readonly waitMs: number;
  /** Set if its object is set aside; else it waits for its turn. */
  readonly aside?: Aside;
}

/** The result of a step: its value, or why there is none. */
export type Stepped<T> =
  | { readonly value: T }
  | {
      /** The object should be tried again after this time, in milliseconds. */
      readonly waitMs: number;
      readonly aside: Aside;
      /** The error that the step has thrown now; absent: it was not done. */
      readonly fault?: unknown;
    };

/** Options of a step. */
export interface StepOptions {
  /** False: further steps with this object follow, so that the end of this one does not clear it. Default true. */
  readonly isLast?: boolean;
  /** True: an error that is a fault of the program is passed on, since what the step has changed cannot be taken back. Default false: it sets the object aside. */
  readonly isThrown?: boolean;
}

/** A pass that has begun. */
export interface BegunPass {
  /** Call this when the pass has ended, well or with an error. */
  readonly end: () => void;
}

export interface PassRecordOptions {
  /** A folder that a restart of the process keeps, such as an emptyDir; it is created. */
  readonly folder: string;
  /** Tells this boot of the machine from others: what was under way when a machine stopped is no suspect. */
  readonly boot: string;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Finds the object whose reconciliation ends the process, by a fault or because the process answers no liveness probe any more, and keeps it from ending the next one:
 * see {@link afterEnd}. Without a folder that can be written it records nothing, with a line in the log.
 */
export class PassRecord {
  readonly #options: PassRecordOptions;
  #slots: Slots | undefined;
  #suspects: readonly Suspect[] = [];
  /** The suspect that is under way, or whose record is kept for a moment, and when it began. */
  #turn: { readonly suspect: Suspect; readonly begunAt: number } | undefined;
  /** A microtask is queued that frees the place of steps. */
  #isFreeing = false;
  /** Cancels what waits for the end of the time for which a record is kept. One for each slot and suspect at most. */
  readonly #kept = new Set<() => void>();

  /** Reads what an earlier process has left. */
  constructor(options: PassRecordOptions) {
    this.#options = options;
    const { folder, boot, clock, log } = options;
    this.#try(() => {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const path = join(folder, UNDER_WAY);
      const underWay = readSlots(path, boot);
      const before = this.#read();
      this.#suspects = underWay.length === 0 ? before : afterEnd(before, underWay, clock.now());
      // First what is known, then the place where it was found: an end in between counts twice at most.
      if (this.#suspects !== before) this.#write();
      this.#slots = new Slots(path, boot);
      for (const { controller, key } of underWay)
        log.warn("an earlier process ended while this was reconciled", { controller, key });
    });
  }

  /** Returns why the key must not be reconciled now; `undefined`: it may be. */
  hold(pass: PassKey, version: string): Held | undefined {
    const suspect = this.#slots === undefined ? undefined : suspectOf(this.#suspects, pass);
    if (suspect === undefined) return undefined;
    const waitMs = asideFor(suspect, version, this.#options.clock.now());
    if (waitMs > 0 && suspect.aside !== undefined) return { waitMs, aside: suspect.aside };
    const isTaken = this.#turn !== undefined && this.#options.clock.monotonic() - this.#turn.begunAt < LONGEST_TURN_MS;
    return isTaken ? { waitMs: TURN_MS } : undefined;
  }

  /** Records that a pass begins. Call {@link PassRecord.hold} first, in the same turn of the event loop. */
  begin(pass: PassKey, version: string): BegunPass {
    const { clock } = this.#options;
    const begunAt = clock.monotonic();
    const slot = this.#try(() => this.#slots?.take({ ...pass, version, atMs: clock.now() }));
    const suspect = suspectOf(this.#suspects, pass);
    if (suspect !== undefined) this.#turn = { suspect, begunAt };
    return {
      end: () => {
        if (slot === undefined && suspect === undefined) return;
        const keptMs = clock.monotonic() - begunAt < LONG_MS ? KEPT_MS : LONG_KEPT_MS;
        const cancel = clock.after(keptMs, () => {
          this.#kept.delete(cancel);
          this.#endedWell(slot, suspect);
        });
        this.#kept.add(cancel);
      },
    };
  }

  /**
   * Does work on an object that awaits nothing, with a record of it while it lasts: one write of a few microseconds. The work is not done while the object is
   * set aside. `version` is called for suspects alone. Without a record the work is done, and its errors are thrown.
   */
  step<T>(pass: PassKey, version: () => string, work: () => T, options: StepOptions = {}): Stepped<T> {
    if (this.#slots === undefined) return { value: work() };
    const { clock } = this.#options;
    const suspect = this.#suspects.length === 0 ? undefined : suspectOf(this.#suspects, pass);
    const known = suspect === undefined ? "" : version();
    const aside = suspect?.aside;
    const waitMs = suspect === undefined ? 0 : asideFor(suspect, known, clock.now());
    if (waitMs > 0 && aside !== undefined) return { waitMs, aside };
    this.#try(() => this.#slots?.step({ ...pass, version: known, atMs: clock.now() }));
    this.#freeStepSoon();
    try {
      const value = work();
      if (suspect !== undefined && options.isLast !== false) this.#endedWell(undefined, suspect);
      return { value };
    } catch (error) {
      if (error instanceof ExpectedError) throw error;
      if (options.isThrown === true) {
        this.#keepStep();
        throw error;
      }
      return this.#faulted({ ...pass, version: version(), atMs: clock.now() }, error);
    }
  }

  /**
   * All work on an object in steps that were not the last ones has ended well: what earlier ends of the process have left about it is forgotten, unless `version` is
   * set aside now. `version` is called for suspects alone.
   */
  endedWell(pass: PassKey, version: () => string): void {
    const suspect = this.#suspects.length === 0 ? undefined : suspectOf(this.#suspects, pass);
    if (suspect === undefined || asideFor(suspect, version(), this.#options.clock.now()) > 0) return;
    this.#endedWell(undefined, suspect);
  }

  #faulted(pass: PassKey & { readonly version: string; readonly atMs: number }, fault: unknown): Stepped<never> {
    const text = (fault instanceof Error ? fault.message : String(fault)).slice(0, MAX_FAULT);
    this.#suspects = afterFault(this.#suspects, pass, text);
    this.#try(() => this.#write());
    const { aside } = suspectOf(this.#suspects, pass) ?? {};
    if (aside === undefined) throw fault;
    return { waitMs: aside.untilMs - pass.atMs, aside, fault };
  }

  /** Steps follow each other, each in the place of the one before: one write frees it after the last one. */
  #freeStepSoon(): void {
    if (this.#isFreeing) return;
    this.#isFreeing = true;
    queueMicrotask(() => {
      if (this.#isFreeing) this.#freeStep();
    });
  }

  /** The error that a step has thrown is about to end the process. */
  #keepStep(): void {
    this.#isFreeing = false;
    const cancel = this.#options.clock.after(KEPT_MS, () => {
      this.#kept.delete(cancel);
      if (!this.#isFreeing) this.#freeStep();
    });
    this.#kept.add(cancel);
  }

  #freeStep(): void {
    this.#isFreeing = false;
    this.#try(() => this.#slots?.freeStep());
  }

  /** The objects that are set aside now. */
  get aside(): readonly Suspect[] {
    const now = this.#options.clock.now();
    return this.#suspects.filter((one) => one.aside !== undefined && one.aside.untilMs > now);
  }

  /** Records nothing more. `isFault` false: the process ends as it was asked to, and what is under way is no cause; true: it is. */
  close({ isFault }: { readonly isFault: boolean }): void {
    const slots = this.#slots;
    this.#slots = undefined;
    for (const cancel of this.#kept) cancel();
    this.#kept.clear();
    if (slots === undefined) return;
    this.#try(() => {
      if (!isFault) slots.empty();
      slots.close();
    });
  }

  #endedWell(slot: number | undefined, suspect: Suspect | undefined): void {
    if (suspect !== undefined && this.#turn?.suspect === suspect) this.#turn = undefined;
    if (this.#slots === undefined) return;
    this.#try(() => {
      if (slot !== undefined) this.#slots?.free(slot);
      if (suspect === undefined || !this.#suspects.includes(suspect)) return;
      this.#suspects = this.#suspects.filter((one) => one !== suspect);
      this.#write();
    });
  }

  #read(): readonly Suspect[] {
    const path = join(this.#options.folder, SUSPECTS);
    try {
      const value: unknown = JSON.parse(readFileSync(path, "utf8"));
      const fault = fitShape(value, FILE);
      if (fault === undefined) return (value as { readonly suspects: readonly Suspect[] }).suspects;
      this.#options.log.warn("what earlier processes have left cannot be read", { path, fault });
    } catch (error) {
      if (error instanceof SyntaxError)
        this.#options.log.warn("what earlier processes have left cannot be read", { path, fault: error.message });
      else if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
    return [];
  }

  #write(): void {
    const text = `${JSON.stringify({ suspects: this.#suspects })}\n`;
    replaceFile(join(this.#options.folder, SUSPECTS), text, { mode: 0o600 });
  }

  /** A record that cannot be written stops no controller: nothing is recorded from then on. */
  #try<T>(action: () => T): T | undefined {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof Error && ("syscall" in error || error.name === "FileError"))) throw error;
      this.#slots = undefined;
      const { folder, log } = this.#options;
      log.warn("passes that are under way cannot be recorded; an object that ends the process will end it again", {
        folder,
        error: error.message,
      });
      return undefined;
    }
  }
}
