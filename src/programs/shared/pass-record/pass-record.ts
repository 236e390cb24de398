import { readFileSync } from "node:fs";
import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { stringFlag } from "#base/config";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { type KubeObject, objectKey, type ResourceType } from "#kube/client";
import { type EventRecorder, type Regarding, regarding } from "#kube/events";
import type { Cached, ObjectSteps, StoreReader } from "#kube/informer";
import type { ControllerOptions } from "#kube/reconciler";
import { type Aside, describeAside, PassRecord, type Stepped } from "#kube/suspects";

/** `--record-dir`, of each program that has passes over outside objects. */
export const recordFlag = {
  recordDir: stringFlag(
    "record-dir",
    "",
    "folder that a restart of the program keeps, such as an emptyDir: an object whose reconciliation ends the program is set aside then; default: none, and such an object ends it each time",
    "PATH",
  ),
};

/** Random for each boot of the machine (proc_sys_kernel(5)). */
const BOOT_ID = "/proc/sys/kernel/random/boot_id";

/** The informer whose objects are named by a controller's keys. */
export interface NamedObjects {
  readonly type: ResourceType<KubeObject>;
  readonly store: Pick<StoreReader<Cached>, "getByKey">;
}

/** The options of a `Controller` by which its objects are set aside. */
export type AsideOptions = Pick<ControllerOptions, "passes" | "versionOf" | "onAside">;

/** Work on an object: its name in the record and the metric, and where an event goes. */
export interface RecordedWork {
  /** The kind of work, as the metric has it. */
  readonly name: string;
  readonly key: string;
  /** The version of the object; a changed one is tried again. Empty: nothing but time ends its being aside. */
  readonly version: () => string;
  /** `undefined`: no event is written. */
  readonly about: () => Regarding | undefined;
  /** The object in words, where `about` is another one, as a Node is for a link of it. The note of the event begins with it. */
  readonly subject?: string;
}

/** The record of `--record-dir`, with the event and the line of the log for an object that is set aside. */
export class PassRecording {
  readonly passes: PassRecord;
  readonly #events: Pick<EventRecorder, "record">;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** The end of the time for which each object is set aside, by work and object, so that it is reported once. Its size is bounded by the number of suspects. */
  readonly #told = new Map<string, number>();

  constructor(
    folder: string,
    parts: { readonly events: Pick<EventRecorder, "record">; readonly log: Logger; readonly clock: Clock },
  ) {
    const { events, log, clock } = parts;
    const boot = readFileSync(BOOT_ID, "utf8").trim();
    this.passes = new PassRecord({ folder, boot, log, clock });
    this.#events = events;
    this.#log = log;
    this.#clock = clock;
  }

  /** Options of a controller. `objects`: see {@link NamedObjects}; without them its keys name no object that could change or have an event. */
  optionsFor(objects: NamedObjects | undefined, log: Logger): AsideOptions {
    return {
      passes: this.passes,
      versionOf: (key) => objects?.store.getByKey(key)?.metadata.resourceVersion,
      onAside: (key, aside) => {
        const object = objects?.store.getByKey(key);
        this.report(
          { key, about: object === undefined || objects === undefined ? undefined : regarding(objects.type, object) },
          aside,
          log,
        );
      },
    };
  }

  /** Steps of an informer. `name`: that of its objects; default the plural of their type. */
  stepsFor(type: ResourceType<KubeObject>, name: string = type.plural): ObjectSteps {
    return {
      step: ({ metadata }, work, options) =>
        this.step(
          {
            name: `watch-${name}`,
            key: objectKey({ metadata }),
            version: () => metadata.resourceVersion,
            about: () => regarding(type, { metadata }),
          },
          work,
          options,
        ),
    };
  }

  /** Does work that awaits nothing: see {@link PassRecord.step}. Reports an object that is set aside, once each time. */
  step<T>(
    { name, key, version, about, subject }: RecordedWork,
    work: () => T,
    options: { readonly isLast?: boolean; readonly isThrown?: boolean } = {},
  ): Stepped<T> {
    const done = this.passes.step({ controller: name, key }, version, work, options);
    if ("value" in done) return done;
    if ("fault" in done)
      this.#log.error("an object is set aside because of a bug", {
        work: name,
        key,
        error: describeError(done.fault),
        stack: done.fault instanceof Error ? done.fault.stack : undefined,
      });
    this.#tell({ name, key, about, ...(subject === undefined ? {} : { subject }) }, done.aside);
    return done;
  }

  /** See {@link PassRecord.endedWell}. */
  endedWell({ name, key, version }: RecordedWork): void {
    this.passes.endedWell({ controller: name, key }, version);
  }

  /** Does work that awaits, as a pass. Resolves to why it is not done while its object is set aside. Rejects as `work` does, and with the signal's reason. */
  async pass<T>(
    { name, key, version, about }: RecordedWork,
    work: () => Promise<T>,
    { signal }: AbortOptions,
  ): Promise<{ readonly value: T } | { readonly waitMs: number; readonly aside: Aside }> {
    const pass = { controller: name, key };
    for (;;) {
      const held = this.passes.hold(pass, version());
      if (held === undefined) break;
      const { aside, waitMs } = held;
      if (aside !== undefined) {
        this.#tell({ name, key, about }, aside);
        return { waitMs, aside };
      }
      await sleep(waitMs, { clock: this.#clock, signal });
    }
    const begun = this.passes.begin(pass, version());
    try {
      return { value: await work() };
    } finally {
      begun.end();
    }
  }

  /** Writes the event and the line of the log. */
  report(
    {
      key,
      about,
      subject,
    }: { readonly key: string; readonly about: Regarding | undefined; readonly subject?: string | undefined },
    aside: Aside,
    log: Logger,
  ): void {
    const why = describeAside(aside);
    log.error("object set aside", { key, note: why });
    if (about === undefined) return;
    const note = subject === undefined ? why : `${subject}: ${why}`;
    this.#events.record({ regarding: about, type: "Warning", reason: "SetAside", note });
  }

  /** Records no pass from now on as a cause of the end of the process, since the process ends as it was asked to. */
  stop(): void {
    this.passes.close({ isFault: false });
  }

  #tell({ name, key, about, subject }: Omit<RecordedWork, "version">, aside: Aside): void {
    const id = `${name} ${key}`;
    if (this.#told.get(id) === aside.untilMs) return;
    const now = this.#clock.now();
    for (const [one, untilMs] of this.#told) if (untilMs <= now) this.#told.delete(one);
    this.#told.set(id, aside.untilMs);
    this.report({ key, about: about(), subject }, aside, this.#log.child(name));
  }
}

/** Opens the record. `undefined` without a folder: nothing is recorded. Passes that an asked for end interrupts are no cause of it. */
export function recordPasses(
  { folder, signal }: { readonly folder: string; readonly signal: AbortSignal },
  parts: ConstructorParameters<typeof PassRecording>[1],
): PassRecording | undefined {
  if (folder === "") return undefined;
  const recording = new PassRecording(folder, parts);
  signal.addEventListener("abort", () => recording.stop(), { once: true });
  return recording;
}
