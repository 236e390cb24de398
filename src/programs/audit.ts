import { listFlag, switchFlag } from "#base/config";
import { ExpectedError } from "#base/errors";
import { callGrpc } from "#features/cni";
import { type AuditedBlock, type AuditedPod, audit, type Finding } from "#features/ipam";
import { type KubeApi, type Pod, resources } from "#kube/client";
import { type AddressBlock, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { INSPECT_PATH, type NodeState } from "./coild/inspect.ts";
import { kubeFlags, openClient } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";

/** What coild answered cannot be read. */
class AuditError extends ExpectedError<"bad-answer"> {
  override readonly name = "AuditError";
}

const flags = {
  sockets: listFlag(
    "socket",
    "socket of a coild whose memory and kernel are compared; default /run/coild.sock",
    "PATH",
  ),
  json: switchFlag("json", false, "print one JSON object"),
  ...kubeFlags,
};

/** `isthmus audit`: proves that API, kernel and memory agree. */
export const auditProgram = defineProgram({
  name: "audit",
  summary: "Compares the API server, the kernel and coild's memory, and says where they disagree.",
  flags,
  notes: [
    "Run it on a node, as root. While pods come and go some findings are only work under way: run it again.",
    "Exit code: 0 without findings, 1 with findings or when something could not be asked.",
  ],
  run: async ({ values, signal }) => {
    await using api = await openClient("audit", values);
    const sockets = values.sockets.length === 0 ? ["/run/coild.sock"] : values.sockets;
    const { findings, checked } = await gatherAudit(api, sockets, { signal });
    if (values.json) process.stdout.write(`${JSON.stringify({ ok: findings.length === 0, checked, findings })}\n`);
    else process.stdout.write(renderFindings(findings, checked));
    return findings.length === 0 ? EXIT.ok : EXIT.failed;
  },
});

/** How much was compared. */
export interface Checked {
  readonly nodes: number;
  readonly blocks: number;
  readonly pods: number;
  readonly links: number;
  readonly exportedRoutes: number;
}

/** Asks everyone and compares. Rejects with what could not be asked. */
export async function gatherAudit(
  api: KubeApi,
  sockets: readonly string[],
  options: {
    readonly signal: AbortSignal;
    /** Blocks and pods of other nodes are left out. Default: none are. */
    readonly only?: ReadonlySet<string> | undefined;
  },
): Promise<{ readonly findings: readonly Finding[]; readonly checked: Checked; readonly wantedRoutes: number }> {
  const { signal, only } = options;
  const nodes = await Promise.all(sockets.map((socket) => inspect(socket, signal)));
  const [blocks, pods, nodeObjects] = await Promise.all([
    api.listAll(coilResources.addressBlocks, { signal }),
    api.listAll(resources.pods, { signal }),
    api.listAll(resources.nodes, { signal }),
  ]);
  const isMeant = ({ node }: { readonly node: string }): boolean => only?.has(node) !== false;
  const asked = new Set(nodes.map((node) => node.node));
  const auditedBlocks = blocks.items.map(auditedBlock).filter(isMeant);
  const auditedPods = pods.items.flatMap(auditedPod).filter(isMeant);
  const findings = audit({
    blocks: auditedBlocks,
    pods: auditedPods,
    nodeNames: nodeObjects.items.map((node) => node.metadata.name),
    nodes,
  });
  return {
    findings,
    wantedRoutes: auditedBlocks
      .filter((block) => asked.has(block.node))
      .reduce((sum, { ipv4, ipv6 }) => sum + (ipv4 === undefined ? 0 : 1) + (ipv6 === undefined ? 0 : 1), 0),
    checked: {
      nodes: nodes.length,
      blocks: auditedBlocks.length,
      pods: auditedPods.length,
      links: nodes.reduce((sum, node) => sum + node.kernel.length, 0),
      exportedRoutes: nodes.reduce((sum, node) => sum + node.exported.length, 0),
    },
  };
}

async function inspect(socket: string, signal: AbortSignal): Promise<NodeState> {
  const answer = await callGrpc(socket, INSPECT_PATH, new Uint8Array(0), { signal });
  try {
    return JSON.parse(new TextDecoder().decode(answer)) as NodeState;
  } catch (error) {
    throw new AuditError("bad-answer", `coild at ${socket} answered with something that is no JSON`, { cause: error });
  }
}

function auditedBlock(block: AddressBlock): AuditedBlock {
  const { name, uid, labels = {}, deletionTimestamp } = block.metadata;
  return {
    name,
    uid,
    pool: labels[POOL_LABEL] ?? "",
    node: labels[NODE_LABEL] ?? "",
    ipv4: block.ipv4,
    ipv6: block.ipv6,
    deleting: deletionTimestamp !== undefined,
  };
}

/** Pods that have addresses of the pod network and have not ended. */
function auditedPod(pod: Pod): AuditedPod[] {
  const ended = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
  const ips = (pod.status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
  const { nodeName = "", hostNetwork } = pod.spec ?? {};
  if (ended || hostNetwork === true || nodeName === "" || ips.length === 0) return [];
  return [{ namespace: pod.metadata.namespace ?? "", name: pod.metadata.name, node: nodeName, ips }];
}

function renderFindings(findings: readonly Finding[], checked: Checked): string {
  const what = `${checked.nodes} nodes, ${checked.blocks} blocks, ${checked.pods} pods, ${checked.links} links, ${checked.exportedRoutes} exported routes`;
  const lines = findings.map((finding) => `${finding.kind}  ${finding.node ?? "cluster"}: ${finding.text}`);
  const end =
    findings.length === 0
      ? `no findings: API, kernel and memory agree on ${what}`
      : `${findings.length} findings among ${what}`;
  return `${[...lines, end].join("\n")}\n`;
}
