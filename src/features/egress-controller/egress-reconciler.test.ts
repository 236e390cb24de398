import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeError } from "#kube/client";
import type { Egress } from "#kube/coil";
import { EgressReconciler } from "./egress-reconciler.ts";

const EGRESS = {
  metadata: { name: "nat", namespace: "internet", uid: "u", resourceVersion: "1" },
  spec: {
    destinations: ["192.0.2.0/24"],
    podDisruptionBudget: { maxUnavailable: 1 },
    template: { spec: { containers: [{ name: "egress" }] } },
  },
} as unknown as Egress;
const SETTINGS = { image: "i", backend: "nftables", tunnelDriver: "vxlan", port: 5555 } as const;

/** A reconciler whose API server answers only when it is told, and the requests that wait for an answer. */
function open(hasAccount: boolean) {
  const waiting: { readonly text: string; readonly answer: () => void }[] = [];
  const method =
    (verb: string) =>
    (type: { readonly kind: string }, ...rest: readonly unknown[]): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const { body } = (rest[1] ?? {}) as { readonly body?: object };
        const answer = (): void =>
          verb === "get" ? reject(new KubeError("not-found", "it is not there")) : resolve({ metadata: {}, ...body });
        waiting.push({ text: `${verb} ${type.kind}`, answer });
      });
  const api = { get: method("get"), patch: method("patch"), create: method("create") } as unknown as KubeApi;
  const caches = {
    egress: () => EGRESS,
    deployment: () => undefined,
    service: () => undefined,
    budget: () => undefined,
    account: () => (hasAccount ? ({ metadata: { name: "coil-egress" } } as never) : undefined),
  };
  const reconciler = new EgressReconciler({ api, caches, router: async () => SETTINGS, log: nullLogger });
  /** Lets all requests be answered that wait now; returns them. */
  const answerAll = async (): Promise<readonly string[]> => {
    await setImmediate();
    const now = waiting.splice(0);
    for (const { answer } of now) answer();
    await setImmediate();
    return now.map(({ text }) => text).sort();
  };
  return { reconciler, answerAll };
}

test("EgressReconciler: the objects of a new Egress take two answers of the API server, and its namespace's account one before", async () => {
  const { reconciler, answerAll } = open(false);
  const done = reconciler.reconcile("internet/nat", { signal: new AbortController().signal });
  assert.deepEqual(await answerAll(), ["create ServiceAccount"]);
  assert.deepEqual(await answerAll(), ["get Deployment", "get PodDisruptionBudget", "get Service", "patch Egress"]);
  assert.deepEqual(await answerAll(), ["patch Deployment", "patch PodDisruptionBudget", "patch Service"]);
  await done;
});

test("EgressReconciler: an Egress of a namespace that has one already takes two answers", async () => {
  const { reconciler, answerAll } = open(true);
  const done = reconciler.reconcile("internet/nat", { signal: new AbortController().signal });
  const all = [await answerAll(), await answerAll()];
  await done;
  assert.deepEqual(
    all.map(({ length }) => length),
    [4, 3],
  );
});
