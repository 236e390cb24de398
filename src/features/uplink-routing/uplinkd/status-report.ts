import { statSync } from "node:fs";
import * as v from "valibot";
import type { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { FileError, fingerprint, LOOK_MS, readBounded, replaceFile } from "#base/file";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { hasError, type UplinkStatus } from "#base/uplink-model";

/** File with the status of the uplinks, written by the process that sends the probes, below the folder of run-time files. */
export const STATUS_REPORT_PATH = "uplink-proxy/reach.json";

/** Interval of writes when nothing changes, in milliseconds. */
const HEARTBEAT_MS = 5000;
/** A report older than this is ignored, because its process has ended; milliseconds. */
const STALE_MS = 20_000;

const time = v.optional(v.pipe(v.number(), v.integer(), v.minValue(0)));
const report = v.record(
  v.string(),
  v.object({
    lastFailed: time,
    lastSucceeded: time,
    lastError: v.string(),
    lastWarning: v.string(),
    isPortal: v.optional(v.boolean()),
  }),
);

/** Status of the uplinks, by name. */
export type StatusReport = Readonly<Record<string, UplinkStatus>>;

/** Dependencies of writer and reader. */
export interface StatusReportDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/** Writes the report whenever `changed` is marked, and at intervals, until the signal aborts. A failure is logged once. */
export async function publishStatus(
  {
    log,
    changed,
    report: current,
  }: StatusReportDeps & { readonly changed: Dirty; readonly report: () => StatusReport },
  { path, signal }: { readonly path: string; readonly signal: AbortSignal },
): Promise<void> {
  let isFailing = false;
  const write = async (): Promise<void> => {
    replaceFile(path, JSON.stringify(current()), { mode: 0o644, folderMode: 0o755 });
    isFailing = false;
  };
  const onFailure = (error: Error): void => {
    if (!isFailing)
      log.warn("cannot write the file with the uplinks' health, which the proxy reads", {
        path,
        error: describeError(error),
      });
    isFailing = true;
  };
  await repeat(write, { signal, dirty: changed, everyMs: HEARTBEAT_MS, onFailure });
}

/** The reader's side of the report. */
export interface StatusFollower {
  /** False for an unknown uplink; its status is then passed again later. */
  readonly reportStatus: (uplink: string, status: UplinkStatus) => boolean;
  /** The failure that was reported of this uplink no longer counts. False if it still does; the next process's success is then passed. */
  readonly withdrawStatus: (uplink: string) => boolean;
}

/**
 * Passes each change of the report to `reportStatus` until the signal aborts. An absent or old report is ignored. Failures are withdrawn once
 * the last report is 20 s old, because its process has ended, and those of uplinks that a report no longer has.
 */
export async function followStatus(
  { clock, log, reportStatus, withdrawStatus }: StatusReportDeps & StatusFollower,
  { path, signal }: { readonly path: string; readonly signal: AbortSignal },
): Promise<void> {
  let seen = "";
  let trouble = "";
  /** The time of the last report by the monotonic clock: the age of a report must not jump with the wall clock. */
  let writtenAt: number | undefined;
  const reported = new Map<string, string>();
  const withdraw = (isGone: (uplink: string) => boolean): void => {
    for (const [uplink, error] of reported)
      if (isGone(uplink) && (error === "" || withdrawStatus(uplink))) reported.delete(uplink);
  };
  const read = (): void => {
    const now = fingerprint(path);
    const ageMs = now === seen || now === "absent" ? STALE_MS : clock.now() - statSync(path).mtimeMs;
    if (ageMs < STALE_MS) {
      const statuses = parseReport(readBounded(path));
      writtenAt = clock.monotonic() - Math.max(0, ageMs);
      for (const [uplink, status] of statuses)
        if (isNews(reported, uplink, status) && !reportStatus(uplink, status)) reported.delete(uplink);
      withdraw((uplink) => !statuses.has(uplink));
    }
    seen = now;
    trouble = "";
  };
  const follow = async (): Promise<void> => {
    try {
      read();
    } catch (error) {
      if (!(error instanceof FileError || error instanceof SyntaxError || isSystemError(error))) throw error;
      if (trouble === "") log.warn("cannot read the status of the uplinks", { path, error: describeError(error) });
      trouble = describeError(error);
    }
    if (writtenAt === undefined || clock.monotonic() - writtenAt < STALE_MS) return;
    withdraw(() => true);
    writtenAt = undefined;
  };
  await repeat(follow, { signal, clock, everyMs: LOOK_MS });
}

/** Throws `SyntaxError` if the text is not a report. */
export function parseReport(text: string): ReadonlyMap<string, UplinkStatus> {
  const result = v.safeParse(report, JSON.parse(text));
  if (!result.success) throw new SyntaxError("the file is not a report of uplinks");
  return new Map(
    Object.entries(result.output).map(([name, { lastFailed, lastSucceeded, lastError, lastWarning, isPortal }]) => [
      name,
      {
        ...(isPortal === true ? { isPortal } : {}),
        ...(lastFailed === undefined ? {} : { lastFailed }),
        ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
        lastError,
        lastWarning,
      },
    ]),
  );
}

/** Returns true if the flag or the error has changed. At the start a working uplink does not count as a change. */
function isNews(reported: Map<string, string>, uplink: string, status: UplinkStatus): boolean {
  const now = hasError(status) ? status.lastError : "";
  const before = reported.get(uplink) ?? "";
  reported.set(uplink, now);
  return now !== before;
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
