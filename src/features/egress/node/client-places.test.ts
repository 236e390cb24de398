import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import { holderOf } from "../client/index.ts";
import { ClientPlaces } from "./client-places.ts";
import type { ClientPod } from "./client-pods.ts";

const podAt = (uid: string, changes: Partial<ClientPod> = {}): ClientPod => ({
  metadata: { name: uid, uid, resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:00Z" },
  namespace: "default",
  labels: {},
  annotations: {},
  hasNetwork: true,
  isRefused: false,
  isRunning: true,
  isLeaving: false,
  addresses: [IpAddress.parse("10.64.0.7")],
  ...changes,
});

test("of two pods with one address the one that is not being deleted has it, and of two such the later one", () => {
  const later = { metadata: { ...podAt("b").metadata, uid: "b", creationTimestamp: "2026-01-02T00:00:00Z" } };
  assert.equal(holderOf([podAt("a"), podAt("b", { isLeaving: true })])?.metadata.uid, "a");
  assert.equal(holderOf([podAt("a"), podAt("b", later)])?.metadata.uid, "b");
  assert.equal(holderOf([podAt("a"), podAt("b", { ...later, isLeaving: true })])?.metadata.uid, "a");
  const kernel = new FakeKernel();
  using netns = kernel.createNetNs("x");
  const all = [podAt("a", { isLeaving: true }), podAt("b")];
  const place = {
    path: "/run/netns/x",
    inode: netns.inode,
    ifname: "eth0",
    podUid: undefined,
    addresses: all[0]?.addresses ?? [],
  };
  const clock = new FakeClock();
  const places = new ClientPlaces({ kernel, list: () => [place], podsAt: () => all, clock });
  assert.deepEqual(
    all.map((pod) => places.of(pod)?.path),
    [undefined, "/run/netns/x"],
  );
});

test("a path that leads to another namespace now is not the pod's", async () => {
  const kernel = new FakeKernel();
  kernel.createNetNs("x")[Symbol.dispose]();
  const places = new ClientPlaces({ kernel, list: () => [], podsAt: () => [], clock: new FakeClock() });
  places.tell("a", { path: "/run/netns/x", ifname: "eth0", addresses: {} });
  assert.equal(places.of(podAt("a"))?.path, "/run/netns/x");
  // A second interface of the pod: the tunnels stay with the first.
  assert.equal(places.tell("a", { path: "/run/netns/x", ifname: "net1", addresses: {} }).ifname, "eth0");
  kernel.deleteNetNs("x");
  kernel.createNetNs("x")[Symbol.dispose]();
  assert.equal(places.of(podAt("a")), undefined);
  assert.equal(places.tell("a", { path: "/run/netns/x", ifname: "net1", addresses: {} }).ifname, "net1");
});
