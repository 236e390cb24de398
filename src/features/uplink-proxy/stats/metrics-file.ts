import { readFileSync } from "node:fs";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { FileError, replaceFile } from "#base/file";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import type { MetricsDocument, MetricsMap } from "./metrics-map.ts";

/**
 * Range of the random pause between two writes, in milliseconds; it is random so that many devices do not write at the same time
 * (docs/spec/uplink-proxy.md#8).
 */
const MIN_PAUSE_MS = 3000;
const MAX_PAUSE_MS = 10_000;

/** Dependencies of the metrics file. */
export interface MetricsFileDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly map: MetricsMap;
  /** Uniform in [0, 1). Default `Math.random`. */
  readonly random?: () => number;
}

/** The path that EVE's tools read, below the directory for run-time files. */
export const METRICS_MAP_PATH = "mgmtproxy/MetricsMap/global.json";

/** Writes the metrics map when it has changed, whole or not at all. A full disk is logged once, and tried again. */
export class MetricsFile {
  readonly #deps: MetricsFileDeps;
  readonly #path: string;
  #written = -1;
  #isFailing = false;

  constructor(deps: MetricsFileDeps, options: { readonly path: string }) {
    this.#deps = deps;
    this.#path = options.path;
  }

  /** Writes the file at intervals until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock, random = Math.random } = this.#deps;
    const pauseMs = (): number => MIN_PAUSE_MS + random() * (MAX_PAUSE_MS - MIN_PAUSE_MS);
    const write = async (): Promise<PassResult> => {
      await this.flush();
      return { againMs: pauseMs() };
    };
    await repeat(write, { signal, clock, everyMs: pauseMs(), startsIdle: true });
  }

  /** Writes the file now if the counters have changed. */
  async flush(): Promise<void> {
    const { map, log } = this.#deps;
    const { version } = map;
    if (version === this.#written) return;
    try {
      replaceFile(this.#path, JSON.stringify(map.document()), { mode: 0o644, folderMode: 0o755 });
      this.#written = version;
      this.#isFailing = false;
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      if (!this.#isFailing) log.warn("cannot write the metrics map", { path: this.#path, error: describeError(error) });
      this.#isFailing = true;
    }
  }
}

/** The published counters cannot be read. */
export class StatsError extends ExpectedError<"unreadable"> {
  override readonly name = "StatsError";
}

/** The document that a running proxy has published. Throws {@link StatsError}. */
export function readMetricsFile(path: string): MetricsDocument {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as MetricsDocument;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const text = `cannot read the counters ${path}: ${why}; check that uplink-proxy runs with this --run-dir`;
    throw new StatsError("unreadable", text, { cause });
  }
}
