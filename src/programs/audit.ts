import { systemClock } from "#base/clock";
import { listFlag, switchFlag } from "#base/config";
import { inspectNodes } from "#features/cni";
import { type AuditCoverage, type AuditedNode, auditCluster, type ChainedNode, type Finding } from "#features/ipam";
import { kubeFlags, openClient } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";

const flags = {
  sockets: listFlag("socket", "socket of the coild whose memory is compared; default /run/coild.sock", "PATH"),
  json: switchFlag("json", false, "print one JSON object"),
  ...kubeFlags,
};

/** `isthmus audit`: compares API server, kernel and memory. */
export const auditProgram = defineProgram({
  name: "audit",
  summary: "Compares the API server, the kernel and coild's memory, and reports the differences.",
  flags,
  notes: [
    "Run it on a node, as root. While pods are created and deleted, some findings are only unfinished changes: run it again.",
    "For a coild behind another plugin (--enable-ipam=false) it compares the marks of links with the running pods.",
    "Exit code: 0 without findings, 1 with findings or when a node or the API server did not answer.",
  ],
  run: async ({ values, signal }) => {
    await using api = await openClient("audit", values, { clock: systemClock });
    const sockets = values.sockets.length === 0 ? ["/run/coild.sock"] : values.sockets;
    const { findings, checked } = await auditCluster(
      api,
      await inspectNodes<AuditedNode | ChainedNode>(sockets, { signal }),
      {
        signal,
      },
    );
    if (values.json) process.stdout.write(`${JSON.stringify({ ok: findings.length === 0, checked, findings })}\n`);
    else process.stdout.write(renderFindings(findings, checked));
    return findings.length === 0 ? EXIT.ok : EXIT.failed;
  },
});

function renderFindings(findings: readonly Finding[], checked: AuditCoverage): string {
  const what = `${checked.nodes} nodes, ${checked.blocks} blocks, ${checked.pods} pods, ${checked.links} links, ${checked.exportedRoutes} exported routes`;
  const lines = findings.map((finding) => `${finding.kind}  ${finding.node ?? "cluster"}: ${finding.text}`);
  const end =
    findings.length === 0
      ? `no findings: API server, kernel and memory agree on ${what}`
      : `${findings.length} findings among ${what}`;
  return `${[...lines, end].join("\n")}\n`;
}
