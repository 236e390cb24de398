import { existsSync } from "node:fs";
import { systemClock } from "#base/clock";
import { listFlag, optionalFlag, switchFlag } from "#base/config";
import { printable } from "#base/text";
import { kubeFlags, openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT, type Program } from "../../shared/program/index.ts";
import { auditWhole, type WholeAudit } from "../../shared/whole-audit/index.ts";
import { findLeftOvers, type LeftOverFinding } from "./left-overs.ts";

const flags = {
  sockets: listFlag("socket", "socket of the coild whose memory is compared; default /run/coild.sock", "PATH"),
  nicSockets: listFlag(
    "nic-socket",
    "socket of the nic-agent whose NICs are compared; default: /run/isthmus/vpc.sock, if there is one",
    "PATH",
  ),
  nicCredentials: optionalFlag(
    "nic-credentials",
    "credentials of the providers of NICs, as nic-controller has them: the ports of providers are compared too",
    "PATH",
  ),
  clusterId: optionalFlag(
    "cluster-id",
    "id of this cluster in the descriptions of ports; default: that of the NicClaims",
    "ID",
  ),
  json: switchFlag("json", false, "print one JSON object"),
  ...kubeFlags,
};

const COILD = "/run/coild.sock";
const NIC_AGENT = "/run/isthmus/vpc.sock";

/** `isthmus audit`: compares API server, kernel and memory, Egress NAT, NICs of VPCs, and the estates of programs. `listed` has the programs of nodes. */
export function auditProgram(listed: ReadonlyMap<string, () => Promise<Program>>): Program {
  return defineProgram({
    name: "audit",
    summary:
      "Compares the API server, the kernel and coild's memory, Egresses with the tunnels, routes and routers of pods, and NICs of VPCs with ports, journals, devices and switches, and reports the differences.",
    flags,
    notes: [
      "Run it on a node, as root. While pods are created and deleted, some findings are only unfinished changes: run it again.",
      "For a coild behind another plugin (--enable-ipam=false) it compares the marks of links with the running pods.",
      "Of Egress NAT it compares what the API server has, and the pods of the nodes whose sockets are given; it counts clients and routers of other nodes. What these credentials may not list is a note, as is a cluster without the type Egress.",
      "Of NICs of VPCs it compares pods with NicClaims; NicClaims with the journal, devices and switch of the nodes whose nic-agent is asked; and with the ports of the providers, if it gets their credentials. Those are for the machine of an administrator, not for nodes. On a node with nic-agent and without coild only NICs are compared. The addresses of pods with NicClaims are not compared with blocks and links of coild.",
      "Routes and rules of this machine that have a number of a program of the suite which is not in its configuration now, or of a program that has left no estate and does not run, are left-overs: each has the command that removes it.",
      "Exit code: 0 without findings, 1 with findings or when a node or the API server did not answer.",
    ],
    run: async ({ values, signal }) => {
      await using api = await openClient("audit", values, { clock: systemClock });
      const { nicCredentials: credentials, clusterId } = values;
      const agents = values.nicSockets.length === 0 && existsSync(NIC_AGENT) ? [NIC_AGENT] : values.nicSockets;
      const isOfNics = (agents.length > 0 || credentials !== undefined) && !existsSync(COILD);
      const sockets = values.sockets.length === 0 && !isOfNics ? [COILD] : values.sockets;
      const whole = await auditWhole(api, sockets, {
        signal,
        hasEgress: true,
        nics: { sockets: agents, credentials, clusterId },
      });
      const left = await findLeftOvers(listed);
      const [findings, notes] = [
        [...whole.findings, ...left.findings],
        [...whole.notes, ...left.notes],
      ];
      const { checked } = whole;
      const ok = findings.length === 0;
      if (values.json) process.stdout.write(`${JSON.stringify({ ok, checked, findings, notes })}\n`);
      else process.stdout.write(auditText({ findings, checked, notes }));
      return findings.length === 0 ? EXIT.ok : EXIT.failed;
    },
  });
}

/** Pure: the result as text for operators. */
export function auditText({
  findings,
  checked,
  notes,
}: Pick<WholeAudit, "checked" | "notes"> & {
  readonly findings: readonly (WholeAudit["findings"][number] | LeftOverFinding)[];
}): string {
  const { egress, nics } = checked;
  // Without a coild there is nothing of the pod network.
  const isOfNics = checked.nodes === 0 && nics !== undefined;
  const what = [
    ...(isOfNics
      ? []
      : [
          `${checked.nodes} nodes, ${checked.blocks} blocks, ${checked.pods} pods, ${checked.links} links, ${checked.exportedRoutes} exported routes`,
        ]),
    ...(egress === undefined
      ? []
      : [`${egress.egresses} Egresses, ${egress.clients} clients, ${egress.routers} routers`]),
    ...(nics === undefined ? [] : [`${nics.claims} NicClaims, ${nics.ports} ports, ${nics.nics} plugged NICs`]),
  ].join(", ");
  const lines = findings.map((finding) => `${finding.kind}  ${finding.node ?? "cluster"}: ${finding.text}`);
  const elsewhere =
    egress === undefined || egress.clientsElsewhere + egress.routersElsewhere === 0
      ? []
      : [
          `${egress.clientsElsewhere} clients and ${egress.routersElsewhere} routers were not compared: run audit on their nodes too, or name the sockets there`,
        ];
  const otherNics =
    nics === undefined || nics.claimsElsewhere === 0
      ? []
      : [
          `the NICs of ${nics.claimsElsewhere} NicClaims were not compared with their nodes: run audit there too, or name the sockets of nic-agent there`,
        ];
  const end =
    findings.length === 0
      ? `no findings: API server, kernel and memory agree on ${what}`
      : `${findings.length} findings among ${what}`;
  const all = [...lines, ...[...notes, ...elsewhere, ...otherNics].map((note) => `note: ${note}`), end];
  return `${all.map(printable).join("\n")}\n`;
}
