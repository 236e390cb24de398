import { Cidr } from "#base/ip";
import type { Draft } from "#kube/client";
import {
  type AddressBlock,
  type AddressPool,
  COIL_FINALIZER,
  DEFAULT_POOL,
  MAX_BLOCK_INDEX,
  MAX_LABEL_VALUE_LENGTH,
  NODE_LABEL,
  POOL_ANNOTATION,
  POOL_LABEL,
  type PoolLayout,
  parsePool,
  RESERVED_LABEL,
  validatePoolCreate,
} from "#kube/coil";
import type { V1Assignment, V1Data, V1Pool } from "./v1-data.ts";

/** The objects of v2 for the data of v1, and the faults and warnings: one line each, which begins with the key. */
export interface V2Plan {
  readonly pools: readonly Draft<AddressPool>[];
  /** The blocks, sorted by pool and index. */
  readonly blocks: readonly Draft<AddressBlock>[];
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
}

/** Names of objects that are also used as label values. */
const NAME = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;

/**
 * Plans an AddressPool for each pool, and a reserved AddressBlock for each block of an existing node (docs/spec/pod-network.md#14). Pure.
 * With faults, the objects must not be used.
 */
export function planV2(data: V1Data, nodes: ReadonlySet<string>): V2Plan {
  const planner = new Planner(nodes);
  const pools = [...data.pools].sort((a, b) => compare(a.name, b.name));
  for (const pool of pools) planner.pool(pool);
  for (const assignment of data.assignments) planner.assignment(assignment);
  planner.addresses(data);
  return planner.plan();
}

interface PlannedPool {
  readonly draft: Draft<AddressPool>;
  readonly layout: PoolLayout;
}

interface PlannedBlock {
  readonly assignment: V1Assignment;
  readonly index: number;
}

class Planner {
  readonly #nodes: ReadonlySet<string>;
  readonly #pools = new Map<string, PlannedPool>();
  /** The blocks by prefix: within a pool all blocks have one size, and pools do not overlap. */
  readonly #blocks = new Map<string, PlannedBlock>();
  readonly #faults: string[] = [];
  readonly #warnings: string[] = [];
  /** Pools with a fault: their blocks are not checked for further faults. */
  readonly #faulty = new Set<string>();

  constructor(nodes: ReadonlySet<string>) {
    this.#nodes = nodes;
  }

  pool({ key, name, blockSize, subnets }: V1Pool): void {
    const spec = { blockSizeBits: blockSize, subnets: subnets.map((subnet) => ({ ipv4: subnet.toString() })) };
    const draft: Draft<AddressPool> = { metadata: { name, finalizers: [COIL_FINALIZER] }, spec };
    const others = Array.from(this.#pools.values(), ({ draft: other }) => ({
      metadata: { name: other.metadata.name ?? "" },
      spec: other.spec,
    }));
    const faults = validatePoolCreate({ metadata: { name }, spec }, { others }).map(
      ({ field, message }) => `${field}: ${message}`,
    );
    if (!NAME.test(name))
      faults.unshift(`"${name}" cannot be the name of an AddressPool: use letters a to z, digits and "-"`);
    if (faults.length > 0) {
      this.#faulty.add(name);
      this.#faults.push(...faults.map((fault) => `${key}: ${fault}`));
      return;
    }
    this.#pools.set(name, { draft, layout: parsePool(spec) });
  }

  assignment(assignment: V1Assignment): void {
    const { key, pool, node, block } = assignment;
    if (this.#faulty.has(pool)) return;
    const planned = this.#pools.get(pool);
    if (planned === undefined) {
      this.#warnings.push(`${key}: there is no pool ${pool}; block ${block} of node ${node} is not converted`);
      return;
    }
    const place = placeIn(planned.layout, block);
    if (typeof place === "string") {
      this.#faults.push(`${key}: block ${block} of node ${node} ${place}`);
      return;
    }
    if (!this.#nodes.has(node)) {
      this.#warnings.push(`${key}: there is no Node ${node}; its block ${block} is not converted`);
      return;
    }
    if (node.length > MAX_LABEL_VALUE_LENGTH) {
      const fault = `a label has at most ${MAX_LABEL_VALUE_LENGTH} characters, and the name has ${node.length}`;
      this.#faults.push(`${key}: block ${block} of node ${node}: ${fault}`);
      return;
    }
    const other = this.#blocks.get(block.toString());
    if (other === undefined) this.#blocks.set(block.toString(), { assignment, index: place });
    else if (other.assignment.node !== node) {
      const also = `${other.assignment.node} (${other.assignment.key})`;
      this.#faults.push(
        `${key}: block ${block} is assigned to node ${node} and to node ${also}; correct etcd's data, so that one node has it`,
      );
    }
  }

  /** Notes pods whose addresses are in no block of the result: v2 can give their addresses to other pods. */
  addresses({ pools, addresses }: V1Data): void {
    const lengths = new Set(pools.map(({ blockSize }) => 32 - blockSize));
    for (const { key, address, pod } of addresses) {
      const isReserved = [...lengths].some((length) => this.#blocks.has(Cidr.of(address, length).toString()));
      if (!isReserved)
        this.#warnings.push(
          `${key}: pod ${pod} has ${address}, which is in no block of an existing Node; another pod can get this address`,
        );
    }
  }

  plan(): V2Plan {
    const blocks = [...this.#blocks.values()]
      .sort((a, b) => compare(a.assignment.pool, b.assignment.pool) || a.index - b.index)
      .map(draftOf);
    const pools = Array.from(this.#pools.values(), ({ draft }) => draft);
    return { pools, blocks, faults: this.#faults, warnings: this.#warnings };
  }
}

/** The index of a block, or the reason why it is not a block of the pool. */
function placeIn(layout: PoolLayout, block: Cidr): number | string {
  if (block.hostBits !== layout.blockSizeBits)
    return `has ${block.size} addresses, but a block of its pool has ${2 ** layout.blockSizeBits}`;
  let before = 0n;
  for (const { ipv4 } of layout.subnets) {
    if (ipv4 === undefined) continue;
    if (ipv4.contains(block)) {
      const index = before + ((block.base.value - ipv4.base.value) >> BigInt(layout.blockSizeBits));
      return index > BigInt(MAX_BLOCK_INDEX) ? `has index ${index}, above ${MAX_BLOCK_INDEX}` : Number(index);
    }
    before += 1n << BigInt(ipv4.hostBits - layout.blockSizeBits);
  }
  return "is in no subnet of its pool";
}

function draftOf({ assignment: { pool, node, block }, index }: PlannedBlock): Draft<AddressBlock> {
  return {
    metadata: {
      name: `${pool}-${index}-v1`,
      labels: { [POOL_LABEL]: pool, [NODE_LABEL]: node, [RESERVED_LABEL]: "true" },
    },
    index,
    ipv4: block.toString(),
  };
}

/** An annotation that a namespace gets. */
export interface Annotation {
  readonly namespace: string;
  readonly pool: string;
}

/** A namespace as the plan reads it. */
export interface NamespaceView {
  readonly name: string;
  /** The namespace's annotation `coil.cybozu.com/pool`. */
  readonly pool: string | undefined;
}

/**
 * In v1 a namespace's pods use the pool of the namespace's name. Returns the annotations that make v2 do the same. A namespace that already
 * has another pool in its annotation keeps that pool.
 */
export function planAnnotations(
  pools: readonly Pick<V1Pool, "name">[],
  namespaces: Iterable<NamespaceView>,
): { readonly annotations: readonly Annotation[]; readonly warnings: readonly string[] } {
  const names = new Set(pools.map(({ name }) => name).filter((name) => name !== DEFAULT_POOL));
  const annotations: Annotation[] = [];
  const warnings: string[] = [];
  for (const { name, pool } of namespaces) {
    if (!names.has(name) || pool === name) continue;
    if (pool === undefined) annotations.push({ namespace: name, pool: name });
    else
      warnings.push(
        `Namespace ${name} has pool ${pool} in its annotation ${POOL_ANNOTATION}, not ${name}; the annotation is kept`,
      );
  }
  return { annotations: annotations.sort((a, b) => compare(a.namespace, b.namespace)), warnings };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
