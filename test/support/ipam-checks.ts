/** The invariants of the model of addresses, read from the kernels alone. */
import assert from "node:assert/strict";
import { audit } from "#features/ipam";
import { coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import type { Held, Machine } from "#test/ipam-machine";
import type { ModelPlace } from "#test/ipam-place";

/**
 * No address is on two pods that are in the network. But a machine that is disconnected, has no `coild`, or has just come back, cannot
 * know that it has lost its blocks; `settled`: the others know, and every pod has what its ADD has answered.
 */
export function assertSound(machines: readonly Machine[], when: string, settled: boolean): void {
  const holders: { readonly address: string; readonly who: string }[] = [];
  for (const machine of machines) {
    const knows = settled && machine.isReady && !machine.isAway;
    for (const held of machine.held()) {
      if (knows) assertWhole(machine, held, when);
      if (held.isCut || (held.sandbox.mayBeTwice && !knows)) continue;
      const who = `${held.sandbox.containerId} on ${machine.node}`;
      for (const address of held.addresses) holders.push({ address, who });
    }
  }
  for (const [address, all] of Map.groupBy(holders, (one) => one.address)) {
    assert.ok(all.length <= 1, `${when}: ${address} is on ${all.map(({ who }) => who).join(" and ")}`);
  }
}

function assertWhole(machine: Machine, { sandbox, addresses, isCut }: Held, when: string): void {
  if (![...machine.sandboxes.values()].includes(sandbox)) return;
  assert.deepEqual(addresses, sandbox.addresses, `${when}: ${sandbox.containerId} has not what its ADD answered`);
  assert.ok(!isCut || sandbox.mayBeTwice, `${when}: ${sandbox.containerId} is cut off without a reason`);
}

/**
 * API, memory and kernel of each machine that knows its blocks agree, and the kernel has the pods of the runtime alone. `nodes` are those of the
 * API. Returns how many machines were compared.
 */
export async function assertAudited(
  { client, scene, options }: ModelPlace,
  machines: readonly Machine[],
  nodes: ReadonlySet<string>,
  when: string,
): Promise<number> {
  const labelSelector = `${POOL_LABEL}=${scene.pool}`;
  const { items } = await client.listAll(coilResources.addressBlocks, { ...options, labelSelector });
  const blocks = items.map(({ metadata, ipv4, ipv6 }) => ({
    name: metadata.name,
    uid: metadata.uid,
    pool: scene.pool,
    node: metadata.labels?.[NODE_LABEL] ?? "",
    ipv4,
    ipv6,
    deleting: false,
  }));
  let audited = 0;
  for (const machine of machines) {
    const held = machine.held();
    const isSure = machine.isReady && !machine.isAway && nodes.has(machine.node);
    // A pod that was cut off, and whose link somebody then took away, is not connected again either.
    const isCutForGood = [...machine.sandboxes.values()].some((one) => one.mayBeTwice && !machine.hasLink(one));
    if (!isSure || isCutForGood || held.some(({ isCut }) => isCut)) continue;
    const pods = held.map(({ sandbox, addresses }) => {
      return { namespace: "default", name: sandbox.pod, node: machine.node, ips: addresses };
    });
    const nodeNames = [...new Set([...nodes, ...blocks.map(({ node }) => node)])];
    const all = audit({ blocks, pods, nodeNames, nodes: [machine.inspect()] });
    const kept = keptByVanished(machine);
    const findings = all.filter(({ kind, text }) =>
      kind === "block-memory"
        ? !text.split(/[ ,]/).some((word) => kept.includes(word))
        : !machine.vanished.has(text.split("/")[0] ?? ""),
    );
    assert.deepEqual(findings, [], `${when}: audit of ${machine.node}`);
    audited += 1;
  }
  return audited;
}

/** The names of blocks with addresses of containers whose links were deleted without a DEL: such a block is in use for a grace, also when it was deleted. */
function keptByVanished(machine: Machine): readonly string[] {
  const { attachments } = machine.inspect().memory;
  return attachments.flatMap(({ containerId, block = "" }) => (machine.vanished.has(containerId) ? [block] : []));
}

/** After the last DEL kernel and memory of a machine have nothing. */
export function assertEmpty(machine: Machine): void {
  assert.deepEqual(machine.leftovers(), [], `${machine.node}: the kernel after the last DEL`);
  const { memory } = machine.inspect();
  assert.deepEqual([memory.attachments, memory.unknown, memory.strays], [[], [], []], `${machine.node}: memory`);
}
