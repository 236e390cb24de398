import assert from "node:assert/strict";
import { test } from "node:test";
import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { IpamError, NodeIpam } from "#features/ipam";
import { PodNetwork } from "#features/pod-network";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import { keepKernel } from "./keep-kernel.ts";
import { LostAttachments } from "./lost-attachments.ts";
import { PodNotes } from "./pod-notes.ts";

const OPTIONS = {
  tableId: 116,
  rulePriority: 2000,
  protocolId: 30,
  compatCalico: false,
  hostLinkLocal: false,
  mtuBytes: 1500,
};

/** A coild that starts on a node whose kernel has an attachment, and whose API server is away. */
async function startWithoutApi(t: { after(work: () => void): void }) {
  const kernel = new FakeKernel();
  const network = new PodNetwork({ kernel, log: nullLogger }, OPTIONS);
  t.after(() => network[Symbol.dispose]());
  network.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: undefined });
  network.initHost();
  kernel.createNetNs("pod")[Symbol.dispose]();
  await network.setUp({
    attachment: { containerId: "aaaa", ifname: "eth0" },
    pool: "default",
    pod: { namespace: "ns", name: "a" },
    ipv4: IpAddress.parse("10.1.0.1"),
    ipv6: undefined,
    netns: "/run/netns/pod",
  });
  const away = async (): Promise<never> => {
    throw new IpamError("api-unavailable", "away");
  };
  const source = { list: away, request: away, settle: away, removeAnswered: away, release: away };
  const ipam = new NodeIpam(
    { source, log: nullLogger, clock: systemClock, onBlocksChanged: () => undefined },
    { collectIntervalMs: 60_000, releaseDelayMs: 0 },
  );
  const health = new Health();
  const lost = new LostAttachments({ health: health.part("attachments"), log: nullLogger, notes: new PodNotes() });
  const stop = new AbortController();
  /** The first sync, which is at once. */
  const syncOnce = async (): Promise<void> => {
    const dirty = new Dirty();
    const parts = {
      network,
      ipam,
      lost,
      dirty,
      health: health.part("kernel"),
      onSurveyed: () => undefined,
      onRemade: () => undefined,
    };
    const running = keepKernel(parts, { registerFromMain: false, signal: stop.signal });
    stop.abort();
    await running;
  };
  return { kernel, network, health, syncOnce };
}

test("keepKernel: a start without an API server joins no attachment that is cut off, and says so", async (t) => {
  const { kernel, network, health, syncOnce } = await startWithoutApi(t);
  assert.equal(network.cutOff(network.survey(), () => true).cut.length, 1);
  const before = kernel.dump("own");
  await syncOnce();
  assert.equal(kernel.dump("own"), before);
  const part = health.parts.find(({ name }) => name === "attachments");
  assert.deepEqual([part?.status, /1 attachments stay cut off/.test(part?.reason ?? "")], ["degraded", true]);
});

test("PodNetwork: a link that cannot be cut off is reported, and delays no other", async (t) => {
  const { kernel, network } = await startWithoutApi(t);
  kernel.fail("links.set", "not-permitted");
  const done = network.cutOff(network.survey(), () => true);
  assert.deepEqual([done.cut, done.failures.map((error) => error instanceof KernelError)], [[], [true]]);
});
