/**
 * A lab as a guest on a cluster of somebody else, who has objects there; see `foreign-cluster`.
 *
 * Owns: the cluster, its owner's objects, the end of the lab, comparing with how it was. Does not know: how the lab ends.
 *
 * ```ts
 * await using bed = await openGuestBed(embeddedCluster, "mine");
 * assertReport(await followPage(bed, PAGE_COMMANDS[0]));
 * await assertAsItWas(bed);
 * ```
 */
import assert from "node:assert/strict";
import type { LabReport } from "#lab/scenario";
import { differences, type ForeignCluster, populate, snapshotOf } from "#test/foreign-cluster";
import { commandsOf, follow } from "#test/guide";
import { leftOf, removeLab, until } from "#test/lab";

/** The cluster's own controllers need time to clean up after the lab's objects, in milliseconds. */
const SETTLE_MS = 60_000;

/** A cluster with objects of its owner, and the name of the lab that is a guest there. */
export interface GuestBed extends AsyncDisposable {
  readonly cluster: ForeignCluster;
  readonly lab: string;
  /** Every object of the cluster before the lab. */
  asItWas: ReadonlyMap<string, string>;
}

/** Opens a cluster with objects of its owner; `lab` is the name of the guest, which is removed with the bed. */
export async function openGuestBed(open: () => Promise<ForeignCluster>, lab: string): Promise<GuestBed> {
  await using opening = new AsyncDisposableStack();
  const cluster = opening.use(await open());
  opening.use(await populate(cluster));
  const asItWas = await snapshotOf(cluster, prefixOf(lab));
  opening.defer(() => removeLab(lab));
  const opened = opening.move();
  return { cluster, lab, asItWas, [Symbol.asyncDispose]: () => opened.disposeAsync() };
}

/** Returns the prefix of the names of a lab's objects on the cluster. */
export function prefixOf(lab: string): string {
  return `isthmus-${lab}-`;
}

/** The command line of the guest: two nodes, six pods; later flags win. */
export function argsOf({ cluster, lab }: GuestBed, ...more: readonly string[]): string[] {
  return ["lab", "--json", `--name=${lab}`, `--kubeconfig=${cluster.kubeconfig}`, "--nodes=2", "--pods=6", ...more];
}

/** The commands of the page: start; with Services; kept; a command in a node; remove. */
export const PAGE_COMMANDS = commandsOf("lab-on-a-cluster.md", "(top)").flatMap((block) => block.split("\n"));

/** Runs one of {@link PAGE_COMMANDS} for the guest, a start with more flags; what it has printed. */
export function followPage(
  bed: GuestBed,
  command: string | undefined,
  { more = [], kubeconfig = bed.cluster.kubeconfig }: { more?: readonly string[]; kubeconfig?: string } = {},
): Promise<string> {
  const [lab = "", ...flags] = argsOf(bed, ...more).filter((flag) => !flag.startsWith("--kubeconfig="));
  const name = `--name=${bed.lab}`;
  const words = {
    "./run lab": ["./run", lab, ...flags].join(" "),
    "lab exec": `lab exec ${name}`,
    "lab down": `lab down ${name}`,
    FILE: kubeconfig,
  };
  return follow([command ?? ""], { words });
}

/** The cluster has the objects that it had before the lab, and the machine has nothing of the lab. */
export async function assertAsItWas({ cluster, lab, asItWas }: GuestBed): Promise<void> {
  let left: readonly string[] = [];
  const isAsItWas = async (): Promise<boolean> => {
    left = differences(asItWas, await snapshotOf(cluster, prefixOf(lab)));
    return left.length === 0;
  };
  await until("the cluster is as it was", isAsItWas, {
    deadlineMs: SETTLE_MS,
    everyMs: 500,
    seen: () => left.join("\n"),
  });
  assert.deepEqual(leftOf(lab), []);
}

/** A report of the guest, in which all is well. */
export function assertReport(stdout: string): LabReport {
  const report = JSON.parse(stdout) as LabReport;
  assert.deepEqual([report.ok, report.nodes, report.pods, report.audit.findings], [true, 2, 6, []]);
  assert.ok(report.pings.sent > 0 && report.pings.answered === report.pings.sent);
  return report;
}
