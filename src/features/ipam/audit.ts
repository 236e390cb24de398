import { Cidr, IpAddress } from "#base/ip";

/** A block that the API server has. */
export interface AuditedBlock {
  readonly name: string;
  readonly uid: string;
  readonly pool: string;
  readonly node: string;
  readonly ipv4: string | undefined;
  readonly ipv6: string | undefined;
  readonly deleting: boolean;
}

/** A pod that is running on the pod network, as the API server reports it. */
export interface AuditedPod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly ips: readonly string[];
}

/** The state of a node, as coild reports it in its answer to Inspect. */
export interface AuditedNode {
  readonly node: string;
  readonly memory: {
    readonly blocks: readonly {
      readonly name: string;
      readonly uid: string;
      readonly missing: boolean;
    }[];
    readonly attachments: readonly {
      readonly containerId: string;
      readonly ifname: string;
      readonly ipv4: string | undefined;
      readonly ipv6: string | undefined;
    }[];
    readonly unknown: readonly { readonly containerId: string; readonly addresses: readonly string[] }[];
  };
  readonly kernel: readonly {
    readonly containerId: string;
    readonly ifname: string;
    readonly addresses: readonly string[];
  }[];
  readonly halfMade: readonly string[];
  /** Prefixes in the export table. */
  readonly exported: readonly string[];
  /** Links that the source guard does not have as their attachments are. Absent without a guard, and from an earlier version. */
  readonly unguarded?: readonly string[];
}

export interface AuditInput {
  readonly blocks: readonly AuditedBlock[];
  readonly pods: readonly AuditedPod[];
  /** Names of all Nodes. */
  readonly nodeNames: readonly string[];
  /** The nodes that were inspected; only their memory and kernel are compared. */
  readonly nodes: readonly AuditedNode[];
}

/** One difference. `kind` does not change between versions, so that scripts can use it; `text` is a sentence for operators. */
export interface Finding {
  readonly kind:
    | "duplicate-address"
    | "address-outside-block"
    | "orphan-block"
    | "overlapping-blocks"
    | "block-memory"
    | "attachment-memory"
    | "leaked-attachment"
    | "missing-attachment"
    | "half-made-link"
    | "unguarded-link"
    | "unknown-address"
    | "route-export"
    | "unmarked-pod"
    | "stray-mark";
  readonly node: string | undefined;
  readonly text: string;
}

/** Finds every difference between API server, kernel and memory. An operation in progress can appear as a difference. Pure. */
export function audit(input: AuditInput): Finding[] {
  return [
    ...duplicateAddresses(input),
    ...podsOutsideBlocks(input),
    ...badBlocks(input),
    ...input.nodes.flatMap((node) => [
      ...blockMemory(node, input),
      ...attachmentMemory(node),
      ...podsAndLinks(node, input),
      ...nodeLeftovers(node),
      ...exportedRoutes(node, input),
    ]),
  ];
}

function duplicateAddresses({ pods, nodes }: AuditInput): Finding[] {
  const holders = new Map<string, string[]>();
  for (const pod of pods) for (const ip of pod.ips) push(holders, ip, `pod ${pod.namespace}/${pod.name}`);
  const links = new Map<string, string[]>();
  for (const node of nodes) {
    for (const link of node.kernel)
      for (const ip of link.addresses) push(links, ip, `container ${link.containerId} on node ${node.node}`);
  }
  return [...holders, ...links].flatMap(([ip, who]) =>
    who.length < 2
      ? []
      : [{ kind: "duplicate-address", node: undefined, text: `${ip} is held by ${who.join(" and ")}` }],
  );
}

function podsOutsideBlocks({ pods, blocks }: AuditInput): Finding[] {
  const byNode = Map.groupBy(blocks, (block) => block.node);
  const prefixes = new Map([...byNode].map(([node, own]) => [node, own.flatMap(cidrsOf)] as const));
  return pods.flatMap((pod) =>
    pod.ips
      .filter((ip) => !(prefixes.get(pod.node) ?? []).some((cidr) => cidr.contains(IpAddress.parse(ip))))
      .map((ip): Finding => {
        const text = `${ip} of pod ${pod.namespace}/${pod.name} is in no block of node ${pod.node}`;
        return { kind: "address-outside-block", node: pod.node, text };
      }),
  );
}

function badBlocks({ blocks, nodeNames }: AuditInput): Finding[] {
  const names = new Set(nodeNames);
  const orphans = blocks
    .filter((block) => !names.has(block.node))
    .map(
      (block): Finding => ({
        kind: "orphan-block",
        node: block.node,
        text: `block ${block.name} belongs to node ${block.node}, which does not exist`,
      }),
    );
  const all = blocks
    .flatMap((block) => cidrsOf(block).map((cidr) => ({ block, cidr })))
    .sort((a, b) => a.cidr.compare(b.cidr));
  const overlaps: Finding[] = [];
  let widest = all[0];
  for (const next of all.slice(1)) {
    if (widest?.cidr.overlaps(next.cidr) === true) {
      const text = `blocks ${widest.block.name} (${widest.cidr}) and ${next.block.name} (${next.cidr}) overlap`;
      overlaps.push({ kind: "overlapping-blocks", node: undefined, text });
    } else {
      widest = next;
    }
  }
  return [...orphans, ...overlaps];
}

function blockMemory(node: AuditedNode, { blocks }: AuditInput): Finding[] {
  const api = new Map(blocks.filter((block) => block.node === node.node).map((block) => [block.uid, block.name]));
  const memory = new Map(node.memory.blocks.map((block) => [block.uid, block.name]));
  const finding = (text: string): Finding => ({ kind: "block-memory", node: node.node, text });
  return [
    ...[...api]
      .filter(([uid]) => !memory.has(uid))
      .map(([, name]) => finding(`block ${name} belongs to this node, but coild does not know it`)),
    ...[...memory]
      .filter(([uid]) => !api.has(uid))
      .map(([, name]) => finding(`coild uses block ${name}, which does not belong to this node`)),
    ...node.memory.blocks
      .filter((block) => block.missing)
      .map((block) => finding(`block ${block.name} was deleted while it was in use`)),
  ];
}

function attachmentMemory(node: AuditedNode): Finding[] {
  const memory = new Map(
    node.memory.attachments.map(({ containerId, ifname, ipv4, ipv6 }) => [
      `${containerId}/${ifname}`,
      [ipv4, ipv6]
        .filter((ip) => ip !== undefined)
        .sort()
        .join(),
    ]),
  );
  const kernel = new Map(
    node.kernel.map(({ containerId, ifname, addresses }) => [`${containerId}/${ifname}`, [...addresses].sort().join()]),
  );
  return [...new Set([...memory.keys(), ...kernel.keys()])]
    .filter((key) => memory.get(key) !== kernel.get(key))
    .map((key): Finding => {
      const text = `${key}: coild's memory has ${memory.get(key) ?? "nothing"}, the kernel has ${kernel.get(key) ?? "nothing"}`;
      return { kind: "attachment-memory", node: node.node, text };
    });
}

function podsAndLinks(node: AuditedNode, { pods }: AuditInput): Finding[] {
  const own = pods.filter((pod) => pod.node === node.node);
  const wanted = new Set(own.flatMap((pod) => pod.ips));
  const present = new Set(node.kernel.flatMap((link) => link.addresses));
  const leaked = node.kernel.filter((link) => !link.addresses.some((ip) => wanted.has(ip)));
  const missing = own.flatMap((pod) => pod.ips.filter((ip) => !present.has(ip)).map((ip) => ({ pod, ip })));
  return [
    ...leaked.map(({ containerId, addresses }): Finding => {
      const text = `link of ${containerId} with ${addresses.join(", ") || "no address"} belongs to no pod`;
      return { kind: "leaked-attachment", node: node.node, text };
    }),
    ...missing.map(({ pod, ip }): Finding => {
      const text = `no link leads to ${ip} of pod ${pod.namespace}/${pod.name}`;
      return { kind: "missing-attachment", node: node.node, text };
    }),
  ];
}

function nodeLeftovers(node: AuditedNode): Finding[] {
  return [
    ...node.halfMade.map(
      (name): Finding => ({
        kind: "half-made-link",
        node: node.node,
        text: `link ${name} was made by an ADD that did not end`,
      }),
    ),
    ...(node.unguarded ?? []).map(
      (name): Finding => ({
        kind: "unguarded-link",
        node: node.node,
        text: `the source guard has other addresses for link ${name} than the kernel's routes`,
      }),
    ),
    ...node.memory.unknown.map(({ containerId, addresses }): Finding => {
      return {
        kind: "unknown-address",
        node: node.node,
        text: `${addresses.join(", ")} of ${containerId} is in no block`,
      };
    }),
  ];
}

function exportedRoutes(node: AuditedNode, { blocks }: AuditInput): Finding[] {
  const wanted = new Set(
    blocks.filter((block) => block.node === node.node).flatMap((block) => cidrsOf(block).map(String)),
  );
  const actual = new Set(node.exported);
  const finding = (text: string): Finding => ({ kind: "route-export", node: node.node, text });
  return [
    ...[...wanted]
      .filter((cidr) => !actual.has(cidr))
      .map((cidr) => finding(`the route to block ${cidr} is not exported`)),
    ...[...actual]
      .filter((cidr) => !wanted.has(cidr))
      .map((cidr) => finding(`a route to ${cidr} is exported, but that is not a block of this node`)),
  ];
}

function cidrsOf(block: AuditedBlock): Cidr[] {
  return [block.ipv4, block.ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
}

function push(map: Map<string, string[]>, key: string, value: string): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}
