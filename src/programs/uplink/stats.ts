import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ExpectedError } from "#base/errors";
import { METRICS_MAP_PATH, type MetricsDocument, statsText } from "#features/uplink-proxy";
import { EXIT } from "../run-program.ts";

/** The counters cannot be shown. */
export class StatsError extends ExpectedError<"unreadable"> {
  override readonly name = "StatsError";
}

/** Prints what a running proxy has published. */
export function printStats(runDir: string): number {
  const path = join(runDir, METRICS_MAP_PATH);
  process.stdout.write(statsText(readDocument(path)));
  return EXIT.ok;
}

function readDocument(path: string): MetricsDocument {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as MetricsDocument;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StatsError(
      "unreadable",
      `cannot read the counters ${path}: ${why}; does uplink-proxy run, and with this --run-dir?`,
      { cause },
    );
  }
}
