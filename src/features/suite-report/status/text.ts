import { printable } from "#base/text";
import { ALLOW_ALL, forwardDropText } from "../forward-drops.ts";
import type { Rows } from "./rows.ts";
import type { SuiteStatus } from "./suite-status.ts";

/** The maximum width of a line, in characters. */
const MAX_WIDTH = 200;

/** The status as one screen of text; parts of the suite that the cluster does not have are left out. Pure. */
export function suiteStatusText(status: SuiteStatus): string {
  const { nodes, requests, services, networkPolicies, nics } = status;
  const sections: (readonly string[])[] = [
    [
      `${status.server} at ${status.time}: ${status.ready ? "all that was found is ready" : "something is not ready"}`,
      ...(nodes === undefined
        ? []
        : [
            `Nodes: ${nodes.ready} of ${nodes.total} ready${nodes.kubelets.length === 0 ? "" : `, kubelet ${nodes.kubelets.join(", ")}`}`,
          ]),
    ],
    status.programs.length === 0
      ? ["no program of the suite was found: no pod runs one, and no process in this network namespace"]
      : table(
          ["PROGRAM", "VERSION", "READY", "NODES", "RESTARTS", "ANSWERED"],
          status.programs.map(({ program, version, ready, instances, nodes: on, restarts, asked }) => [
            program,
            version,
            `${ready}/${instances}`,
            String(on),
            String(restarts),
            `${asked}/${instances}`,
          ]),
        ),
    list("not ready", status.notReady, ["PROGRAM", "POD", "NODE", "WHY"], ({ program, name, node, why }) => [
      program,
      name,
      node,
      why,
    ]),
    list("ready, with parts that do not work", status.degraded, ["PROGRAM", "POD", "NODE", "PARTS"], (row) => [
      row.program,
      row.name,
      row.node,
      row.why,
    ]),
    forwardDropLines(status),
    list(
      "pools",
      status.pools,
      ["POOL", "BLOCKS", "ADDRESSES USED", "FREE IN BLOCKS"],
      ({ name, blocks, maxBlocks, usedAddresses, freeAddresses }) => [
        name,
        `${blocks} of ${maxBlocks ?? "?"}`,
        String(usedAddresses ?? "-"),
        String(freeAddresses ?? "-"),
      ],
    ),
    [
      ...(requests === undefined ? [] : [`BlockRequests: ${requests.waiting} wait, ${requests.failed} failed`]),
      ...(services === undefined ? [] : [`Services: ${services.services}, EndpointSlices: ${services.slices}`]),
      ...(networkPolicies === undefined
        ? []
        : [
            `NetworkPolicies${networkPolicies.state === "ok" ? "" : `, ${networkPolicies.state}`}: ${networkPolicies.text}`,
          ]),
      ...(nics === undefined
        ? []
        : [
            `NicClaims: ${nics.claims}${Object.entries(nics.phases)
              .map(([phase, count]) => `, ${count} ${phase}`)
              .join("")}`,
          ]),
    ],
    list("links of the tunnel", status.tunnel, ["PROGRAM", "POD", "LINKS"], ({ program, name, text }) => [
      program,
      name,
      text,
    ]),
    list("uplinks", status.uplinks, ["UPLINK", "STATE", "OF"], ({ name, uplink, works }) => [
      uplink,
      works ? "works" : "failed",
      name,
    ]),
    list("egresses", status.egresses, ["EGRESS", "ROUTERS READY"], ({ namespace, name, ready, wanted }) => [
      `${namespace}/${name}`,
      `${ready} of ${wanted}`,
    ]),
    list("leaders", status.leaders, ["LEASE", "HOLDER", "RENEWED"], ({ lease, holder, ageSeconds, isStale }) => [
      lease,
      holder,
      `${ageSeconds === undefined ? "never" : `${ageSeconds} s ago`}${isStale ? ", stale" : ""}`,
    ]),
    list("last errors", status.errors, ["TIME", "PROGRAM", "OBJECT", "REASON", "NOTE"], (error) => [
      error.time,
      error.program,
      error.object,
      error.count > 1 ? `${error.reason} (${error.count} times)` : error.reason,
      error.note,
    ]),
    status.notRead.map(({ what, why }) => `not read: ${what}: ${why}`),
  ];
  const lines = sections.filter((lines) => lines.length > 0).map((section) => section.map(oneLine).join("\n"));
  return `${lines.join("\n\n")}\n`;
}

/** A filter has a line of its own, and so has each command, as it is to be typed. */
function forwardDropLines({ forwardDrops = { rows: [], more: 0 } }: SuiteStatus): readonly string[] {
  const { rows, more } = forwardDrops;
  if (rows.length === 0) return [];
  return [
    "packet filters of this machine that drop what it forwards for pods:",
    ...rows.flatMap((drop) => [
      `${drop.filter} ${forwardDropText(drop)}`,
      ...(drop.outcome === "maybe" ? [] : drop.allow.map((command) => `  ${command}`)),
    ]),
    ...(more === 0 ? [] : [`and ${more} more`]),
    ...(rows.some(({ outcome }) => outcome === "dropped") ? [`The commands let them pass; ${ALLOW_ALL}.`] : []),
  ];
}

function list<T>(
  title: string,
  { rows, more }: Rows<T>,
  head: readonly string[],
  cells: (row: T) => readonly string[],
) {
  if (rows.length === 0) return [];
  return [`${title}:`, ...table(head, rows.map(cells)), ...(more === 0 ? [] : [`and ${more} more`])];
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const lines = [head, ...rows].map((cells) => cells.map((cell) => (cell === "" ? "-" : printable(cell))));
  const widths = head.map((_, at) => Math.max(...lines.map((cells) => cells[at]?.length ?? 0)));
  return lines.map((cells) =>
    cells
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

/** Texts of others must not draw on the terminal. */
function oneLine(text: string): string {
  const plain = printable(text);
  return plain.length > MAX_WIDTH ? `${plain.slice(0, MAX_WIDTH - 1)}…` : plain;
}
