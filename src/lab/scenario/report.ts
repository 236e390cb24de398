import type { PingResult } from "#lab/ping";
import { type ChainedReport, chainedWorks } from "./chained-verify.ts";
import { type EgressReport, egressLines } from "./egress-report.ts";
import { type ServicesReport, servicesLines } from "./services-report.ts";
import { type TunnelReport, tunnelLines } from "./tunnel-report.ts";
import { type UpgradeReport, upgradeLines } from "./upgrade-report.ts";
import { type UplinksReport, uplinksLines } from "./uplinks-report.ts";
import { type VpcReport, vpcLines } from "./vpc-report.ts";

/** The report of `isthmus lab --json`. Later versions may add members, but do not remove any. */
export interface LabReport {
  readonly ok: boolean;
  readonly lab: string;
  /** The digest of the image from which the programs ran; present with `--image`. */
  readonly image?: string;
  /** Number of pods. */
  readonly nodes: number;
  readonly pods: number;
  /** `acrossNodes`: number of sent pings from a pod to a pod of another node. */
  readonly pings: PingResult & { readonly acrossNodes: number };
  readonly families: readonly string[];
  readonly addresses: { readonly total: number; readonly unique: boolean; readonly outsideBlocks: readonly string[] };
  /** Prefixes in each node's export table. */
  readonly routes: { readonly exported: number; readonly wanted: number };
  readonly audit: {
    readonly findings: readonly { readonly kind: string; readonly node: string | undefined; readonly text: string }[];
    /** The compared parts of Egress NAT; present with `--egress`. */
    readonly egress?: { readonly egresses: number; readonly clients: number; readonly routers: number };
  };
  /** Present with `--tunnel`. */
  readonly tunnel?: TunnelReport;
  /** Present with `--uplinks`. */
  readonly uplinks?: UplinksReport;
  /** Present with `--services`. */
  readonly services?: ServicesReport;
  /** Present with `--egress`. */
  readonly egress?: EgressReport;
  /** Present with `--chained`. */
  readonly chained?: ChainedReport;
  /** Present with `--vpc`. */
  readonly vpc?: VpcReport;
  /** Present with `--upgrade`. */
  readonly upgrade?: UpgradeReport;
  /** Nodes and pods by name. */
  readonly cluster: {
    readonly nodes: readonly {
      readonly name: string;
      readonly addresses: readonly string[];
      readonly pods: number;
      readonly blocks: readonly {
        readonly name: string;
        readonly pool: string;
        readonly prefixes: readonly string[];
      }[];
    }[];
    readonly pods: readonly { readonly name: string; readonly node: string; readonly addresses: readonly string[] }[];
  };
  /** Seconds from the start of the command to this report. */
  readonly seconds: number;
}

/** Returns true if every ping was answered, and some went from one node to another if several nodes have pods. */
export function reachesAll({ pings, nodes, pods }: Pick<LabReport, "pings" | "nodes" | "pods">): boolean {
  return pings.answered === pings.sent && (pings.acrossNodes > 0 || nodes < 2 || pods < 2);
}

/** Longer lists are cut, and their length is shown. */
const MAX_ROWS = 12;

/** The report as text for users. */
export function renderReport(report: LabReport): string {
  const { pings, addresses, routes, audit } = report;
  const mark = (good: boolean): string => (good ? "ok  " : "FAIL");
  const lines = [
    ...table(
      ["NODE", "ADDRESSES", "PODS", "BLOCKS"],
      report.cluster.nodes.map((node) => [
        node.name,
        node.addresses.join(" "),
        String(node.pods),
        cut(
          node.blocks.map((block) => block.name),
          6,
        ).join(" "),
      ]),
    ),
    "",
    ...table(
      ["POD", "NODE", "ADDRESSES"],
      cutRows(report.cluster.pods.map((pod) => [pod.name, pod.node, pod.addresses.join(" ")])),
    ),
    "",
    `${mark(reachesAll(report))} ${pings.answered} of ${pings.sent} pings answered: every pod to every other pod and node, ${report.families.join(" and ")}; ${pings.acrossNodes} of them between pods of two nodes`,
    ...cut(
      pings.unanswered.map((pair) => `       ${pair.from} -> ${pair.to} (${pair.address}): ${pair.reason}`),
      MAX_ROWS,
    ),
    `${mark(addresses.unique && addresses.outsideBlocks.length === 0)} ${addresses.total} addresses, ${addresses.unique ? "all different" : "some twice"}, ${addresses.outsideBlocks.length === 0 ? (report.chained === undefined ? "each in a block of its node" : "each in the range of its node") : `outside their node's blocks: ${addresses.outsideBlocks.join(" ")}`}`,
    ...chainedLines(report, mark),
    `${mark(routes.exported === routes.wanted)} ${routes.exported} of ${routes.wanted} block routes exported (table 119)`,
    `${mark(audit.findings.length === 0)} audit: ${audit.findings.length === 0 ? `API server, kernel and memory agree${audit.egress === undefined ? "" : `; so do ${audit.egress.egresses} Egresses, ${audit.egress.clients} clients and ${audit.egress.routers} routers`}` : `${audit.findings.length} findings`}`,
    ...cut(
      audit.findings.map((finding) => `       ${finding.node ?? "cluster"}: ${finding.text}`),
      MAX_ROWS,
    ),
    ...(report.tunnel === undefined ? [] : tunnelLines(report.tunnel, { mark, cut: (rows) => cut(rows, MAX_ROWS) })),
    ...(report.uplinks === undefined ? [] : uplinksLines(report.uplinks, { mark, cut: (rows) => cut(rows, MAX_ROWS) })),
    ...(report.egress === undefined ? [] : egressLines(report.egress, { mark, cut: (rows) => cut(rows, MAX_ROWS) })),
    ...(report.vpc === undefined ? [] : vpcLines(report.vpc, { mark })),
    ...(report.upgrade === undefined ? [] : upgradeLines(report.upgrade, { mark, cut: (rows) => cut(rows, MAX_ROWS) })),
    ...(report.services === undefined
      ? []
      : servicesLines(report.services, { mark, cut: (rows) => cut(rows, MAX_ROWS) })),
    "",
    ...(report.image === undefined ? [] : [`programs of the image ${report.image}`]),
    `${report.ok ? "all is well" : "NOT ALL IS WELL"}: ${report.nodes} nodes, ${report.pods} pods, ${report.seconds.toFixed(1)} s`,
  ];
  return `${lines.join("\n")}\n`;
}

function chainedLines(report: LabReport, mark: (good: boolean) => string): string[] {
  const { chained } = report;
  if (chained === undefined) return [];
  const faults = [
    ...chained.unmarked.map((pod) => `not marked: ${pod}`),
    ...chained.strays.map((one) => `no pod: ${one}`),
  ];
  return [
    `${mark(chainedWorks(chained, report))} ${chained.marked} links of ${report.pods} pods, made by ptp, are marked by coil behind it`,
    ...cut(
      faults.map((fault) => `       ${fault}`),
      MAX_ROWS,
    ),
  ];
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => (row[at] ?? "").length)));
  return [head, ...rows].map((row) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

function cutRows(rows: readonly (readonly string[])[]): readonly (readonly string[])[] {
  return rows.length <= MAX_ROWS
    ? rows
    : [...rows.slice(0, MAX_ROWS - 1), [`... and ${rows.length - MAX_ROWS + 1} more`]];
}

function cut(lines: readonly string[], most: number): readonly string[] {
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), `... and ${lines.length - most + 1} more`];
}
