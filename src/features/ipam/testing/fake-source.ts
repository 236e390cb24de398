import { FakeClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import type { BlockListing, BlockSource, OwnedBlock } from "../block-source.ts";
import { IpamError } from "../errors.ts";
import { NodeIpam } from "../node-ipam.ts";

/** The blocks of a cluster in memory, of two addresses each; tests can make its calls fail. */
export class FakeSource implements BlockSource {
  readonly owned = new Map<string, OwnedBlock>();
  requests = 0;
  free: number;
  failing: "list" | "request" | "release" | undefined;
  #next = 0;

  constructor(blocks: number) {
    this.free = blocks;
  }

  /** Names of blocks whose content cannot be read. */
  readonly unreadable = new Set<string>();

  async list(_options: object): Promise<BlockListing> {
    await Promise.resolve();
    this.#maybeFail("list");
    const wanted = [...this.owned.values()];
    return {
      blocks: wanted.filter(({ name }) => !this.unreadable.has(name)),
      unreadable: new Set(wanted.map(({ name }) => name).filter((name) => this.unreadable.has(name))),
    };
  }

  async request(pool: string): Promise<void> {
    this.requests += 1;
    await Promise.resolve();
    this.#maybeFail("request");
    if (this.free === 0) throw new IpamError("exhausted", `pool ${pool} has no free block`);
    this.free -= 1;
    this.add(pool);
  }

  async settle(): Promise<void> {
    await Promise.resolve();
  }

  async removeAnswered(): Promise<number> {
    await Promise.resolve();
    return 0;
  }

  async release(block: OwnedBlock): Promise<void> {
    await Promise.resolve();
    this.#maybeFail("release");
    if (this.owned.delete(block.uid)) this.free += 1;
  }

  add(pool: string, changes: Partial<OwnedBlock> = {}): OwnedBlock {
    const index = this.#next;
    this.#next += 1;
    const block: OwnedBlock = {
      name: `${pool}-${index}`,
      uid: `uid-${index}`,
      pool,
      index,
      ipv4: Cidr.parse("10.0.0.0/16").subnet(31, index),
      ipv6: Cidr.parse("fd00::/112").subnet(127, index),
      reserved: false,
      deleting: false,
      ...changes,
    };
    this.owned.set(block.uid, block);
    return block;
  }

  #maybeFail(step: "list" | "request" | "release"): void {
    if (this.failing === step) throw new IpamError("api-unavailable", `injected: ${step}`);
  }
}

/** A node, and a cluster with this number of free blocks. */
export function open(
  blocks: number,
  releaseDelayMs = 0,
  freedSoonMs = 0,
  onBlockWait: (seconds: number) => void = () => undefined,
  mayRelease: () => boolean = () => true,
) {
  const source = new FakeSource(blocks);
  const clock = new FakeClock();
  const ipam = new NodeIpam(
    { source, log: nullLogger, clock, onBlocksChanged: () => undefined, onBlockWait, mayRelease },
    { collectIntervalMs: 300_000, releaseDelayMs, freedSoonMs },
  );
  return { source, clock, ipam };
}

/** An attachment. */
export const pod = (id: number | string): { containerId: string; ifname: string } => ({
  containerId: `c${id}`,
  ifname: "eth0",
});
