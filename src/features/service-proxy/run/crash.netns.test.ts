/** A proxy that is killed, or refused by the kernel, at any transaction (docs/spec/service-proxy.md#2.12, #3.2: R3, R4). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { Nft } from "#kernel/nft";
import { ElementBatch, type NftElements } from "#kernel/nft-elements";
import { DataPlane, GenerationTracker, type WantedState } from "../dataplane/index.ts";
import { addressBytes, addressKey, endpointValue } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, ruleOptions, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";
import { randomService, randomSlice } from "../testing/random-objects.ts";
import { TrackedObjects } from "../testing/tracked-objects.ts";

const RUNS = process.env["ISTHMUS_SOAK"] === "full" ? 1000 : 50;
const ENDPOINTS = 4;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-crash-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

/** The process ends here. */
class Killed extends Error {}

/** The kernel, until a transaction that does not happen, or a listing of elements that fails. */
class FailingKernel {
  readonly #error: () => Error;
  #left: number;
  hasFailed = false;
  readonly nft: Nft = this.#over(bed.nft, ["run"]);
  readonly elements: NftElements;

  constructor(transactions: number, error: () => Error, { countsListings = false } = {}) {
    this.#left = transactions;
    this.#error = error;
    this.elements = this.#over(bed.elements, countsListings ? ["commit", "listInSlices"] : ["commit"]);
  }

  /** Fails after so many more transactions. */
  failAfter(transactions: number): void {
    this.#left = transactions;
  }

  #over<T extends object>(real: T, methods: readonly (keyof T | string | symbol)[]): T {
    return new Proxy(real, {
      get: (target, key) => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== "function") return value;
        return (...args: readonly unknown[]): unknown => {
          if (methods.includes(key)) this.#count();
          return Reflect.apply(value, target, args);
        };
      },
    });
  }

  #count(): void {
    this.#left -= 1;
    if (this.#left !== -1) return;
    this.hasFailed = true;
    throw this.#error();
  }
}

function open(
  family: IpFamily,
  { nft, elements }: { readonly nft: Nft; readonly elements: NftElements } = bed,
): DataPlane {
  const options = { ...ruleOptions(family), tableName: "kube-proxy" };
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    options,
  );
}

/** The kernel has the plan: neither the plane that wrote it nor one that lists it changes anything. */
async function holds(plane: DataPlane, family: IpFamily, objects: TrackedObjects): Promise<void> {
  assert.equal((await plane.sync(objects.state, { full: true })).changes, 0);
  const other = open(family);
  assert.equal((await other.sync(objects.state, { full: true })).changes, 0);
  assert.deepEqual(new Set(other.frontEnds.keys()), new Set(Array.from(objects.wanted.frontEnds(), ([id]) => id)));
}

/** Affinity entries of clients of the Service's cluster IP, one for each of these endpoints. */
async function remember(family: IpFamily, endpoints: readonly IpAddress[]): Promise<void> {
  const batch = new ElementBatch(tableOf(family));
  const frontEnd = addressKey(addressesOf(family).clusterIP, "TCP", SERVICE_PORT);
  for (const [at, address] of endpoints.entries()) {
    const client = addressBytes(addressesOf(family).external.plus(BigInt(at)));
    batch.add("affinity", client + frontEnd, endpointValue(address, TARGET_PORT));
  }
  await bed.elements.commit(batch);
}

/** The endpoints that affinity entries name. */
function remembered(family: IpFamily): Set<unknown> {
  return new Set(bed.elements.list(tableOf(family), "affinity").map(({ value }) => value));
}

const tableOf = (family: IpFamily) => ({ family: family === 4 ? "ip" : "ip6", name: "kube-proxy" }) as const;

/** Which transaction fails: most often one of the first, as most updates have few. */
const failingAt = fc.oneof({ weight: 3, arbitrary: fc.nat({ max: 4 }) }, { weight: 1, arbitrary: fc.nat({ max: 12 }) });

for (const family of [4, 6] as const) {
  test(`DataPlane: killed or refused at any transaction, the next sync makes the same table as a fresh one, IPv${family}`, async () => {
    const objects = fc.record({
      services: fc.array(randomService, { minLength: 1, maxLength: 6 }),
      slices: fc.array(randomSlice, { minLength: 2, maxLength: 8 }),
    });
    let failures = 0;
    await fc.assert(
      fc.asyncProperty(objects, objects, failingAt, fc.boolean(), async (one, two, at, isKilled) => {
        const objects = new TrackedObjects(family);
        const tell = ({ services, slices }: typeof one): WantedState => objects.objects(services, slices).state;
        await open(family).remove();
        await open(family).sync(tell(one));
        const refused = (): Error => new KernelError("busy", "cannot write elements: the table is busy");
        const kernel = new FailingKernel(at, isKilled ? () => new Killed("killed") : refused);
        const plane = open(family, kernel);
        await plane.sync(tell(two)).catch((error: unknown) => {
          if (!kernel.hasFailed) throw error;
        });
        if (kernel.hasFailed) failures += 1;
        const next = isKilled ? open(family) : plane;
        await next.sync(objects.state, { full: true });
        await holds(next, family, objects);
      }),
      { numRuns: RUNS },
    );
    assert.ok(failures > RUNS / 4, `only ${failures} syncs failed`);
  });

  test(`DataPlane: killed or refused at any transaction or listing, no client is sent to an endpoint that is gone by its affinity, IPv${family}`, async () => {
    const gone = addressesOf(family).remoteEndpoint;
    const [stays, comes] = [gone.plus(1n), gone.plus(2n)];
    const service = serviceObject(family, { sessionAffinity: "ClientIP" });
    const sliceOf = (...addresses: readonly IpAddress[]) =>
      sliceObject(
        family,
        addresses.map((address) => endpointObject(address, "elsewhere")),
      );
    const refused = (): Error => new KernelError("busy", "cannot write elements: the table is busy");
    for (const isKilled of [true, false]) {
      let hasFailed = true;
      let points = 0;
      for (; hasFailed; points += 1) {
        await open(family).remove();
        const error = isKilled ? () => new Killed("killed") : refused;
        const kernel = new FailingKernel(Number.POSITIVE_INFINITY, error, { countsListings: true });
        const plane = open(family, kernel);
        const objects = new TrackedObjects(family).objects([service], [sliceOf(gone, stays)]);
        await plane.sync(objects.state);
        await remember(family, [gone, stays]);
        objects.objects([], [sliceOf(stays, comes)]);
        kernel.failAfter(points);
        await plane.sync(objects.state).catch((failure: unknown) => {
          if (!kernel.hasFailed) throw failure;
        });
        hasFailed = kernel.hasFailed;
        kernel.failAfter(Number.POSITIVE_INFINITY);
        const next = isKilled ? open(family) : plane;
        if (hasFailed) await next.sync(objects.state, { full: true });
        const what = `${isKilled ? "killed" : "refused"} after ${points}`;
        assert.deepEqual(remembered(family), new Set([endpointValue(stays, TARGET_PORT)]), what);
        await holds(next, family, objects);
      }
      assert.ok(points > 4, `only ${points} moments`);
    }
  });

  test(`DataPlane: killed between any two transactions of an update, no Service that stays fails a connection, IPv${family}`, async () => {
    const { clusterIP, serviceCIDR, remoteEndpoint } = addressesOf(family);
    const endpoints = [...(await bed.serveMore(family, ENDPOINTS)), remoteEndpoint];
    const other = String(serviceCIDR.at(0x55));
    const slice = (from: number, to: number, name = "web") =>
      sliceObject(
        family,
        endpoints.slice(from, to).map((address) => endpointObject(address, "elsewhere")),
        { name, service: name },
      );
    const before_ = (): TrackedObjects => new TrackedObjects(family).objects([serviceObject(family)], [slice(0, 2)]);
    const more = { clusterIP: other, clusterIPs: [other], sessionAffinity: "ClientIP" };
    let hasFailed = true;
    let points = 0;
    for (; hasFailed; points += 1) {
      await open(family).remove();
      await open(family).sync(before_().state);
      const objects = before_().objects([serviceObject(family, more, "new")], [slice(1, 5), slice(0, 3, "new")]);
      const kernel = new FailingKernel(points, () => new Killed("killed"));
      await open(family, kernel)
        .sync(objects.state)
        .catch((error: unknown) => {
          if (!(error instanceof Killed)) throw error;
        });
      hasFailed = kernel.hasFailed;
      for (let tries = 0; tries < 8; tries += 1) {
        const { kind } = await bed.connect("external", clusterIP, SERVICE_PORT, { droppedMs: 900 });
        assert.equal(kind, "delivered", `after ${points} transactions`);
      }
      const next = open(family);
      await next.sync(objects.state, { full: true });
      await holds(next, family, objects);
    }
    assert.ok(points > 4, `only ${points} moments to be killed at`);
  });
}
