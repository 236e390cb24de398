import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeError, type KubeObject, type Patch, type ResourceType } from "#kube/client";
import { Heartbeat } from "./heartbeat.ts";

/** A cluster with one Node; each write is a line. */
class Cluster {
  readonly written: string[] = [];
  node: string | undefined = "uid-1";
  lease: { readonly uid: string; readonly owner: string } | undefined;
  isAway = false;
  #leases = 0;

  readonly api = {
    get: async <T extends KubeObject>(type: ResourceType<T>): Promise<T> => {
      this.#answer();
      if (this.node === undefined) throw new KubeError("not-found", `no ${type.kind}`);
      return { metadata: { name: "n", uid: this.node, resourceVersion: "1" } } as T;
    },
    patch: async <T extends KubeObject>(type: ResourceType<T>, _ref: object, patch: Patch): Promise<T> => {
      this.#answer();
      const { metadata } = ("body" in patch ? patch.body : {}) as { metadata?: { uid?: string } };
      if (type.kind === "Lease" && this.lease?.uid !== metadata?.uid) throw new KubeError("not-found", "no Lease");
      this.written.push(type.kind === "Lease" ? `renew ${this.lease?.uid}` : "status");
      return {} as T;
    },
  };

  readonly createLease = async (draft: {
    metadata: { ownerReferences?: readonly { uid: string }[] };
  }): Promise<never> => {
    this.#answer();
    this.#leases += 1;
    this.lease = { uid: `lease-${this.#leases}`, owner: draft.metadata.ownerReferences?.[0]?.uid ?? "" };
    this.written.push(`create ${this.lease.uid} of ${this.lease.owner}`);
    return { metadata: { name: "n", uid: this.lease.uid, resourceVersion: "1" } } as never;
  };

  #answer(): void {
    if (this.isAway) throw new KubeError("unreachable", "away");
  }

  take(): string[] {
    return this.written.splice(0);
  }
}

test("Heartbeat: renews the Lease every ten seconds and the status every five minutes; makes a new Lease for a new Node, and none without a Node", async () => {
  const clock = new FakeClock();
  const cluster = new Cluster();
  const heartbeat = new Heartbeat({ ...cluster, log: nullLogger, clock }, { node: "n" });
  const stop = new AbortController();
  await heartbeat.ready({});
  assert.deepEqual(cluster.take(), ["create lease-1 of uid-1", "status"]);
  const running = heartbeat.run({ signal: stop.signal });
  const pass = async (ms: number): Promise<string[]> => {
    await clock.advance(ms);
    return cluster.take();
  };
  assert.deepEqual(await pass(30_000), ["renew lease-1", "renew lease-1", "renew lease-1"]);
  assert.equal((await pass(300_000)).filter((line) => line === "status").length, 1);
  // The Node is deleted, and its Lease with it.
  cluster.node = undefined;
  cluster.lease = undefined;
  assert.deepEqual(await pass(20_000), []);
  cluster.node = "uid-2";
  assert.deepEqual(await pass(20_000), ["create lease-2 of uid-2", "renew lease-2"]);
  // The cluster is unreachable for a while: tried each second, and on time again when it is back.
  cluster.isAway = true;
  assert.deepEqual(await pass(15_000), []);
  cluster.isAway = false;
  assert.deepEqual(await pass(1000), ["renew lease-2"]);
  stop.abort();
  await running;
});
