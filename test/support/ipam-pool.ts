/** The pool of the model of addresses, and what operators do to it and its blocks by hand. */
import assert from "node:assert/strict";
import { Cidr } from "#base/ip";
import { isKubeError, type KubeError } from "#kube/client";
import { type AddressBlock, type AddressPoolSpec, COIL_FINALIZER, coilResources, RESERVED_LABEL } from "#kube/coil";
import type { ModelPlace } from "#test/ipam-place";
import { absent } from "#test/ipam-registry";

const { addressBlocks, addressPools } = coilResources;
export const POOL: AddressPoolSpec = { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28", ipv6: "fd09::/124" }] };
/** The pool has this many subnets at most. */
const MAX_SUBNETS = 3;

/** One pool. `onChange` is called after each write of it or its blocks. */
export class ModelPool {
  readonly #place: ModelPlace;
  readonly #onChange: () => void;
  #spec = POOL;
  /** It is being deleted: it goes with its last block. */
  #isDeleted = false;

  constructor(place: ModelPlace, onChange: () => void) {
    this.#place = place;
    this.#onChange = onChange;
  }

  get isDeleted(): boolean {
    return this.#isDeleted;
  }

  /** The number of blocks that it can have. */
  get capacity(): number {
    return this.#spec.subnets.length * 8;
  }

  /** Adds a subnet. False where it has enough, or is being deleted. */
  async append(): Promise<boolean> {
    const at = this.#spec.subnets.length;
    if (this.#isDeleted || at >= MAX_SUBNETS) return false;
    const subnets = [...this.#spec.subnets, { ipv4: `10.9.${at}.0/28`, ipv6: `fd09:0:0:${at}::/124` }];
    this.#spec = { ...this.#spec, subnets };
    await this.#place.scene.change(this.#spec);
    this.#onChange();
    return true;
  }

  /** Tries edits that would take addresses away from pods, which are refused in any state of the pool. */
  async forbiddenEdit(at: number): Promise<void> {
    const { subnets } = this.#spec;
    const edits: AddressPoolSpec[] = [
      { ...this.#spec, blockSizeBits: 2 },
      { ...this.#spec, subnets: [{ ipv4: "10.9.0.0/27", ipv6: "fd09::/123" }, ...subnets.slice(1)] },
      { ...this.#spec, subnets: subnets.slice(1) },
    ];
    const edit = edits[at % edits.length] ?? POOL;
    // A pool that is being deleted goes with its last block.
    const codes = this.#isDeleted ? (["invalid", "not-found"] as const) : (["invalid"] as const);
    await assert.rejects(this.#place.scene.change(edit), (error: KubeError) => isKubeError(error, ...codes));
  }

  /** Reserves a block, or with `null` gives all back. Returns how many were written. */
  async label(at: number, value: "true" | null): Promise<number> {
    const { client, options } = this.#place;
    let written = 0;
    for (const block of value === null ? await this.#place.scene.blocks() : [await this.#block(at)]) {
      if (block === undefined || (value === null) === (block.metadata.labels?.[RESERVED_LABEL] === undefined)) continue;
      const body = { metadata: { labels: { [RESERVED_LABEL]: value } } };
      await client.patch(addressBlocks, { name: block.metadata.name }, { type: "merge", body }, options);
      this.#onChange();
      written += 1;
    }
    return written;
  }

  /** An operator deletes a block; its finalizer holds it while it is in use. */
  async deleteBlock(at: number): Promise<void> {
    const block = await this.#block(at);
    if (block === undefined) return;
    const { client, options } = this.#place;
    await client.delete(addressBlocks, { name: block.metadata.name }, options);
    this.#onChange();
  }

  /** An operator takes the finalizer away too. `before` is told the IPv4 prefix, of which pods may have addresses. */
  async forceBlock(at: number, before: (prefix: Cidr) => void): Promise<void> {
    const block = await this.#block(at);
    if (block === undefined) return;
    before(Cidr.parse(block.ipv4 ?? ""));
    const { client, options } = this.#place;
    const { name } = block.metadata;
    const body = { metadata: { finalizers: null } };
    await client.patch(addressBlocks, { name }, { type: "merge", body }, options);
    await client.delete(addressBlocks, { name }, options).catch(absent);
    this.#onChange();
  }

  async delete(): Promise<void> {
    const { client, options, scene } = this.#place;
    await client.delete(addressPools, { name: scene.pool }, options);
    this.#isDeleted = true;
    this.#onChange();
  }

  /** The pool has gone with its last pod; it is made anew with its first subnet. */
  async remake(): Promise<void> {
    const { client, options, scene } = this.#place;
    await this.assertNoBlocks();
    const left = await client.get(addressPools, { name: scene.pool }, options).catch(absent);
    assert.equal(left, undefined, "the pool has no block, and is there");
    this.#spec = POOL;
    const metadata = { name: scene.pool, finalizers: [COIL_FINALIZER] };
    await client.create(addressPools, { metadata, spec: POOL }, options);
    this.#isDeleted = false;
    this.#onChange();
  }

  async assertNoBlocks(): Promise<void> {
    const blocks = await this.#place.scene.blocks();
    assert.deepEqual(
      blocks.map(({ metadata }) => metadata.name),
      [],
    );
  }

  /** A block of the pool, whose choice depends on the step alone. */
  async #block(at: number): Promise<AddressBlock | undefined> {
    const blocks = await this.#place.scene.blocks();
    return blocks[at % Math.max(blocks.length, 1)];
  }
}
