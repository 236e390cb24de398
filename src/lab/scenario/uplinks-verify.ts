import { readFileSync } from "node:fs";
import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { type Kernel, openKernel } from "#kernel/net";
import { LabError, type LabUplinks } from "#lab/host";
import { InsideError } from "#lab/inside";
import { breakUplink, healUplink, UPLINK_FAULTS, type UplinkFault } from "#lab/topology";
import { type DownloadRequest, type DownloadSource, download, proxyPage } from "./uplinks-download.ts";
import type { UplinkDownload, UplinkRecovery, UplinksReport } from "./uplinks-report.ts";

/** Maximum time until the proxy serves after the lab is up, in milliseconds. */
const READY_MS = 20_000;
/** Maximum time until a repaired uplink is used again, in milliseconds. */
const BACK_MS = 20_000;
const LOOK_MS = 100;
const METRIC = { tunnels: "uplink_proxy_tunnels_total", bytes: "uplink_proxy_received_bytes_total" } as const;

type Link = LabUplinks["links"][number];

interface Test {
  readonly kernel: Kernel;
  readonly place: DownloadSource;
  readonly cheap: Link;
  readonly dear: Link;
}

/**
 * Downloads through the proxy of the node that has uplinks; breaks the cheap uplink in each way, downloads again, heals it. Failures
 * are in the report. At the end the uplink is always healed. Rejects with `LabError` `not-reached` if the
 * proxy does not serve, with `KernelError`, `NftError` and the signal's reason.
 */
export async function verifyUplinks(uplinks: LabUplinks, options: AbortOptions): Promise<UplinksReport> {
  const startedMs = performance.now();
  const [cheap, dear] = uplinks.links.toSorted((a, b) => a.cost - b.cost);
  if (cheap === undefined || dear === undefined) throw new Error("a lab with uplinks has two");
  await untilServing(uplinks, options);
  const place = { uplinks, ca: readFileSync(uplinks.ca, "utf8") };
  const test: Test = { kernel: openKernel(), place, cheap, dear };
  const downloads = await everything(test, { when: "healthy", wanted: cheap.name, path: "/file" }, options);
  const recoveries: UplinkRecovery[] = [];
  for (const fault of UPLINK_FAULTS) {
    const found = await verifyFault(test, fault, options);
    downloads.push(...found.downloads);
    recoveries.push(found.recovery);
  }
  return {
    node: uplinks.node,
    links: uplinks.links.map(({ name, cost, addresses }) => ({ name, cost, addresses })),
    downloads,
    recoveries,
    carried: carriedBy(uplinks, await proxyPage(uplinks, "/metrics", options)),
    seconds: secondsSince(startedMs),
  };
}

/** Twice while it is broken, because the second download must not be delayed; once after it is healed. */
async function verifyFault(
  test: Test,
  fault: UplinkFault,
  options: AbortOptions,
): Promise<{ readonly downloads: readonly UplinkDownload[]; readonly recovery: UplinkRecovery }> {
  const { kernel, cheap, dear } = test;
  const broken = { when: fault, wanted: dear.name, path: "/file" } as const;
  let first: readonly UplinkDownload[];
  let second: readonly UplinkDownload[];
  try {
    breakUplink(kernel, cheap, fault);
    first = await everything(test, broken, options);
    second = await everything(test, broken, options);
  } finally {
    healUplink(kernel, cheap);
  }
  const healedMs = performance.now();
  const small = { when: "healed", wanted: cheap.name, path: "/who" } as const;
  const settled: UplinkDownload[] = [];
  await poll(() => everything(test, small, options), {
    until: (seen) => {
      // An error counts also while the proxy returns to the uplink.
      settled.push(...seen.filter(({ ok }) => !ok));
      return seen.every(({ uplink }) => uplink === cheap.name);
    },
    everyMs: LOOK_MS,
    deadlineMs: BACK_MS,
    signal: options.signal,
    clock: systemClock,
  });
  const backSeconds = secondsSince(healedMs);
  settled.push(...(await everything(test, { ...small, path: "/file" }, options)));
  const whole = first.filter(({ ok }) => ok).map(({ seconds }) => seconds);
  return {
    downloads: [...first, ...second, ...settled],
    recovery: { fault, seconds: whole.length === 0 ? null : Math.min(...whole), backSeconds },
  };
}

/** Downloads from each address and by name, all at the same time. */
function everything(
  { place }: Test,
  wish: Omit<DownloadRequest, "to">,
  options: AbortOptions,
): Promise<UplinkDownload[]> {
  const { addresses, name } = place.uplinks.server;
  return Promise.all([name, ...addresses].map((to) => download(place, { ...wish, to }, options)));
}

/** Waits until the proxy answers and every uplink works. */
async function untilServing(uplinks: LabUplinks, options: AbortOptions): Promise<void> {
  const seen = await poll(() => healthOf(uplinks, options), {
    until: (health) => health === "ready",
    everyMs: LOOK_MS,
    deadlineMs: READY_MS,
    signal: options.signal,
    clock: systemClock,
  });
  if (seen === "ready") return;
  throw new LabError(
    "not-reached",
    `uplink-proxy of ${uplinks.node} does not serve after ${READY_MS / 1000} s: ${seen}`,
  );
}

/** `ready`, or the part that is not ready. */
async function healthOf(uplinks: LabUplinks, options: AbortOptions): Promise<string> {
  try {
    const health = JSON.parse(await proxyPage(uplinks, "/healthz", options)) as {
      readonly ready: boolean;
      readonly ports: readonly { readonly ifname: string; readonly hasError?: boolean; readonly usableAddr?: string }[];
    };
    const bad = health.ports.filter((port) => port.hasError === true || port.usableAddr === undefined);
    if (health.ready && bad.length === 0 && health.ports.length === uplinks.links.length) return "ready";
    return `/healthz answered ${JSON.stringify({ ready: health.ready, ports: health.ports })}`;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return error.message;
  }
}

/** Pure: the bytes of each uplink in the proxy's metrics. */
function carriedBy({ links }: LabUplinks, metrics: string): UplinksReport["carried"] {
  const value = (metric: string, name: string): number => {
    const start = `${metric}{interface="${name}"} `;
    return Number(
      metrics
        .split("\n")
        .find((line) => line.startsWith(start))
        ?.slice(start.length) ?? 0,
    );
  };
  return Object.fromEntries(
    links.map(({ name }) => [name, { tunnels: value(METRIC.tunnels, name), bytes: value(METRIC.bytes, name) }]),
  );
}

function secondsSince(startedMs: number): number {
  return Number(((performance.now() - startedMs) / 1000).toFixed(2));
}
