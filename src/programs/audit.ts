import { systemClock } from "#base/clock";
import { listFlag, switchFlag } from "#base/config";
import { kubeFlags, openClient } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";
import { auditWhole, type WholeAudit } from "./whole-audit/index.ts";

const flags = {
  sockets: listFlag("socket", "socket of the coild whose memory is compared; default /run/coild.sock", "PATH"),
  json: switchFlag("json", false, "print one JSON object"),
  ...kubeFlags,
};

/** `isthmus audit`: compares API server, kernel and memory, and Egress NAT. */
export const auditProgram = defineProgram({
  name: "audit",
  summary:
    "Compares the API server, the kernel and coild's memory, and Egresses with the tunnels, routes and routers of pods, and reports the differences.",
  flags,
  notes: [
    "Run it on a node, as root. While pods are created and deleted, some findings are only unfinished changes: run it again.",
    "For a coild behind another plugin (--enable-ipam=false) it compares the marks of links with the running pods.",
    "Of Egress NAT it compares what the API server has, and the pods of the nodes whose sockets are given; it counts clients and routers of other nodes. What these credentials may not list is a note, as is a cluster without the type Egress.",
    "Exit code: 0 without findings, 1 with findings or when a node or the API server did not answer.",
  ],
  run: async ({ values, signal }) => {
    await using api = await openClient("audit", values, { clock: systemClock });
    const sockets = values.sockets.length === 0 ? ["/run/coild.sock"] : values.sockets;
    const { findings, checked, notes } = await auditWhole(api, sockets, { signal, hasEgress: true });
    const ok = findings.length === 0;
    if (values.json) process.stdout.write(`${JSON.stringify({ ok, checked, findings, notes })}\n`);
    else process.stdout.write(auditText({ findings, checked, notes }));
    return findings.length === 0 ? EXIT.ok : EXIT.failed;
  },
});

/** Pure: the result as text for operators. */
export function auditText({ findings, checked, notes }: Pick<WholeAudit, "findings" | "checked" | "notes">): string {
  const { egress } = checked;
  const what = [
    `${checked.nodes} nodes, ${checked.blocks} blocks, ${checked.pods} pods, ${checked.links} links, ${checked.exportedRoutes} exported routes`,
    ...(egress === undefined
      ? []
      : [`${egress.egresses} Egresses, ${egress.clients} clients, ${egress.routers} routers`]),
  ].join(", ");
  const lines = findings.map((finding) => `${finding.kind}  ${finding.node ?? "cluster"}: ${finding.text}`);
  const elsewhere =
    egress === undefined || egress.clientsElsewhere + egress.routersElsewhere === 0
      ? []
      : [
          `${egress.clientsElsewhere} clients and ${egress.routersElsewhere} routers were not compared: run audit on their nodes too, or name the sockets there`,
        ];
  const end =
    findings.length === 0
      ? `no findings: API server, kernel and memory agree on ${what}`
      : `${findings.length} findings among ${what}`;
  return `${[...lines, ...[...notes, ...elsewhere].map((note) => `note: ${note}`), end].join("\n")}\n`;
}
