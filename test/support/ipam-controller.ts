/** The controller of the model of addresses: its real parts, a connection to the API that fails, leaders that follow each other. */
import { type FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { BlockRequestReconciler, IpamError, OrphanCollector, PoolManager, reconcilePool } from "#features/ipam";
import { isKubeError } from "#kube/client";
import { type AddressBlock, coilResources } from "#kube/coil";
import { type ApiFault, ApiPath, Life, mortalApi, type OnWritten } from "#test/ipam-mortal";
import type { ModelPlace } from "#test/ipam-place";
import { until } from "#test/lab";

const log = nullLogger;

/** The clock of the grace, the grace of nodes that are gone, and who is told of each write. */
interface ControllerInit {
  readonly clock: FakeClock;
  readonly graceMs: number;
  readonly onWritten: OnWritten;
}

/** One controller; its leaders can follow each other. */
export class ModelController {
  readonly #place: ModelPlace;
  readonly #init: ControllerInit;
  readonly #path = new ApiPath();
  #leader: ReturnType<typeof openLeader>;
  #isAway = false;
  /** The pool was changed, and the controller has not looked at it. */
  #isPoolChanged = true;
  /** Blocks by UID, as the leader's watch last reported them. Only controllers make blocks. */
  readonly #blocks = new Map<string, AddressBlock>();

  constructor(place: ModelPlace, init: ControllerInit) {
    this.#place = place;
    const onWritten: OnWritten = async (method, args, answer) => {
      // A watch reports each block, also one that is deleted before the next look.
      if (method === "create" && args[0] === coilResources.addressBlocks) {
        const block = answer as AddressBlock;
        this.#blocks.set(block.metadata.uid, block);
      }
      await init.onWritten(method, args, answer);
    };
    this.#init = { ...init, onWritten };
    this.#leader = openLeader(place, this.#path, this.#init);
  }

  /** It answers no request. */
  get isAway(): boolean {
    return this.#isAway;
  }

  leave(): void {
    this.#isAway = true;
  }

  failAfter(calls: number, how: ApiFault): void {
    this.#path.failAfter(calls, how);
  }

  notePoolChange(): void {
    this.#isPoolChanged = true;
  }

  noteNode(node: string): void {
    this.#leader.collector.noteNode(node);
  }

  /** Another leader, whose memory is empty. */
  elect(): void {
    this.#isPoolChanged = true;
    this.#leader = openLeader(this.#place, this.#path, this.#init);
  }

  async answer(name: string): Promise<void> {
    await persist(() => this.#leader.reconciler.reconcile(name, this.#place.options));
  }

  /** The names of the requests for blocks of the pool. */
  async requests(): Promise<string[]> {
    const { client, options, scene } = this.#place;
    const { items } = await client.listAll(coilResources.blockRequests, options);
    return items.filter(({ spec }) => spec?.poolName === scene.pool).map(({ metadata }) => metadata.name);
  }

  /** Its connection works again; one that was away answers what waits for it. */
  async recover(): Promise<void> {
    this.#path.heal();
    if (!this.#isAway) return;
    this.#isAway = false;
    for (const name of await this.requests()) await this.answer(name);
    // The ADD was given up; its request goes on.
    await until("coild has taken what it requested", async () => (await this.requests()).length === 0, { everyMs: 5 });
  }

  /** Its watch has the deletions of blocks since the last time, and it looks at a pool that was changed, or is being deleted. */
  async goOn({ isPoolDeleted }: { readonly isPoolDeleted: boolean }): Promise<void> {
    const { options, scene } = this.#place;
    const blocks = new Map((await scene.blocks()).map((block) => [block.metadata.uid, block]));
    for (const [uid, block] of this.#blocks) {
      if (blocks.has(uid)) continue;
      this.#blocks.delete(uid);
      this.#leader.pools.noteBlockGone(block);
    }
    if (!this.#isPoolChanged && !isPoolDeleted) return;
    this.#isPoolChanged = false;
    const { api, pools } = this.#leader;
    await persist(() => reconcilePool({ api, pools, log }, scene.pool, options));
  }

  /** One pass of the collector. Returns how many blocks it has deleted. */
  async collect(): Promise<number> {
    try {
      return (await this.#leader.collector.collect(this.#place.options)).deleted;
    } catch (error) {
      if (!(error instanceof IpamError)) throw error;
      return 0;
    }
  }
}

function openLeader({ client, known }: ModelPlace, path: ApiPath, { clock, graceMs, onWritten }: ControllerInit) {
  const api = mortalApi(client, { path, life: new Life(), onWritten });
  const pools = new PoolManager({ api, log, clock: systemClock }, { allocation: "first-fit" });
  return {
    api,
    pools,
    reconciler: new BlockRequestReconciler({ api, pools, clock: systemClock, log }),
    collector: new OrphanCollector({ api, known, log, clock }, { graceMs }),
  };
}

/** As a work queue does: again after a failure of the API. */
async function persist(work: () => Promise<unknown>): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      await work();
      return;
    } catch (error) {
      if (!isKubeError(error) || tries >= 3) throw error;
    }
  }
}
