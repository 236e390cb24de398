import type { BackendName } from "./services-objects.ts";

/** One connection to a Service, and its result. */
export interface ServiceTry {
  readonly from: string;
  readonly to: string;
  readonly wanted: string;
  readonly got: string;
  readonly ok: boolean;
}

/** Connections through the balancers during a drain or a rolling update. */
export interface LoadResult {
  /** All connections, answered completely or failed. */
  readonly connections: number;
  /** Number of these connections that lasted a second. */
  readonly long: number;
  readonly failed: readonly string[];
}

/** The report of a drain of a node, as the cluster autoscaler does it. */
export interface DrainReport extends LoadResult {
  readonly node: string;
  /** Connections that the balancers had sent through the node before it was tainted. */
  readonly through: number;
  /** Number of these connections that were open when the taint was set. */
  readonly underWay: number;
  /** The time from the taint until the balancer of eTP Cluster sent no more connections to the node; `null`: never. */
  readonly outSeconds: number | null;
  /** The time from the eviction of its pods until the balancer of eTP Local sent no more connections to the node; `null`: never. */
  readonly localOutSeconds: number | null;
  /** The time from the creation of the new Node until it got connections again; `null`: never. */
  readonly backSeconds: number | null;
}

/** The report of a rollout that replaces all pods of a Deployment. */
export interface RolloutReport extends LoadResult {
  readonly deployment: BackendName;
  readonly externalTrafficPolicy: "Cluster" | "Local";
  readonly pods: number;
  readonly seconds: number;
}

/** The member `services` of the report, with `isthmus lab --services`. */
export interface ServicesReport {
  readonly services: readonly string[];
  readonly tries: readonly ServiceTry[];
  readonly drain: DrainReport;
  readonly rollouts: readonly RolloutReport[];
  readonly seconds: number;
}

/** Returns true if every try had the wanted result and no connection failed. */
export function servicesWork(report: ServicesReport): boolean {
  return triesWork(report) && drainWorks(report.drain) && report.rollouts.every(loadWorks);
}

function triesWork({ tries }: ServicesReport): boolean {
  return tries.length > 0 && tries.every(({ ok }) => ok);
}

function drainWorks(drain: DrainReport): boolean {
  const { outSeconds, localOutSeconds, backSeconds, underWay } = drain;
  const times = [outSeconds, localOutSeconds, backSeconds];
  return loadWorks(drain) && underWay > 0 && times.every((seconds) => seconds !== null);
}

function loadWorks({ connections, failed }: LoadResult): boolean {
  return connections > 0 && failed.length === 0;
}

/** The part of the report as text for users. `cut` shortens long lists. */
export function servicesLines(
  report: ServicesReport,
  {
    mark,
    cut,
  }: { readonly mark: (good: boolean) => string; readonly cut: (lines: readonly string[]) => readonly string[] },
): string[] {
  const { services, tries, drain, rollouts } = report;
  const wrong = tries.filter(({ ok }) => !ok);
  return [
    `${mark(triesWork(report))} services ${services.join(", ")}: ${tries.length - wrong.length} of ${tries.length} tries from pods, nodes and outside had the expected result`,
    ...cut(wrong.map(({ from, to, wanted, got }) => `       ${from} -> ${to}: wanted ${wanted}, got ${got}`)),
    `${mark(drainWorks(drain))} drain of ${drain.node}: ${loadText(drain)}; ${drain.through} went through it, ${drain.underWay} of them under way as it was tainted`,
    `       balancers: out ${secondsText(drain.outSeconds)} after the taint, eTP Local ${secondsText(drain.localOutSeconds)} after the eviction; a new node is in after ${secondsText(drain.backSeconds)}`,
    ...cut(drain.failed.map((text) => `       ${text}`)),
    ...rollouts.flatMap((rollout) => [
      `${mark(loadWorks(rollout))} rolling update of ${rollout.deployment} (eTP ${rollout.externalTrafficPolicy}, ${rollout.pods} pods, ${rollout.seconds.toFixed(1)} s): ${loadText(rollout)}`,
      ...cut(rollout.failed.map((text) => `       ${text}`)),
    ]),
  ];
}

function loadText({ connections, long, failed }: LoadResult): string {
  return `${connections - failed.length} of ${connections} connections (${long} long ones) answered whole`;
}

function secondsText(seconds: number | null): string {
  return seconds === null ? "never" : `${seconds.toFixed(2)} s`;
}
