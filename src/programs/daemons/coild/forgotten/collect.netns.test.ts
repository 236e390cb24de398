import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { Health } from "#base/health";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { serveGrpc } from "#features/cni";
import { PodNetwork } from "#features/pod-network";
import { openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { type KubeApi, KubeError } from "#kube/client";
import type { EventInput } from "#kube/events";
import { LIST_SANDBOXES } from "#wire/cri";
import { ProtoWriter } from "#wire/protobuf";
import { type CollectorParts, collectForgotten } from "./index.ts";

const OPTIONS = {
  tableId: 116,
  rulePriority: 2000,
  protocolId: 30,
  compatCalico: false,
  hostLinkLocal: false,
  mtuBytes: 1500,
};
const GRACE_MS = 60_000;
const LOOK_MS = GRACE_MS / 3;
const SANDBOXES = ["forgotten", "running", "of-a-pod"] as const;

/** A look is over when the collector waits for its next one. */
const PAUSED = { until: (is: boolean) => is, everyMs: 5, deadlineMs: 5000, clock: systemClock };

/** A node with three pinned sandboxes; a process is in the second one, and a Pod has the address of the third one. */
async function node(
  t: TestContext,
  options: { readonly criSocket?: string; readonly processes?: () => undefined; readonly ifname?: string },
) {
  const kernel = openKernel();
  const id = `isthmus-t${process.pid}-${Math.random().toString(36).slice(2, 7)}`;
  const names = [id, ...SANDBOXES.map((name) => `${id}-${name}`)];
  for (const name of names) kernel.createNetNs(name)[Symbol.dispose]();
  const netns = kernel.openNetNs({ name: id });
  const network = inNetNs(netns, () => new PodNetwork({ kernel, log: nullLogger }, OPTIONS));
  network.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: undefined });
  network.initHost();
  for (const [at, containerId] of SANDBOXES.entries())
    await network.setUp({
      attachment: { containerId, ifname: options.ifname ?? "eth0" },
      pool: "default",
      pod: { namespace: "ns", name: containerId },
      network: "net",
      ipv4: IpAddress.parse(`10.1.0.${at}`),
      ipv6: undefined,
      netns: `/run/netns/${id}-${containerId}`,
    });
  using running = kernel.openNetNs({ name: `${id}-running` });
  const pause = inNetNs(running, () => spawn("sleep", ["600"], { stdio: "ignore" }));
  await once(pause, "spawn");
  const clock = new FakeClock();
  const [events, lines, collected]: [EventInput[], string[], string[]] = [[], [], []];
  let [lists, isAway] = [0, false];
  const pods: object[] = [{ spec: {}, status: { phase: "Running", podIPs: [{ ip: "10.1.0.2" }] } }];
  const api = {
    listAll: async () => {
      lists += 1;
      if (isAway) throw new KubeError("unreachable", "the API server is away");
      return { items: pods };
    },
  } as unknown as Pick<KubeApi, "listAll">;
  const health = new Health();
  const parts: CollectorParts = {
    network,
    service: {
      collect: async (one) => {
        await network.tearDown(one);
        collected.push(one.containerId);
      },
    },
    api,
    events: { record: (event) => events.push(event) },
    onCollected: () => undefined,
    health: health.part("forgotten"),
    log: createLogger({ name: "t", write: (line) => lines.push(line) }),
    clock,
    ...(options.processes === undefined ? {} : { processes: options.processes }),
  };
  const stop = new AbortController();
  const { criSocket = "" } = options;
  const collecting = collectForgotten(parts, { nodeName: "n1", criSocket, graceMs: GRACE_MS, signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await collecting;
    pause.kill("SIGKILL");
    network[Symbol.dispose]();
    netns[Symbol.dispose]();
    for (const name of names) kernel.deleteNetNs(name);
  });
  const paused = () => poll(() => clock.pending > 0, PAUSED);
  const left = () => network.list().map(({ containerId }) => containerId);
  return {
    health,
    events,
    lines,
    collected,
    left,
    lists: () => lists,
    pods,
    away: (is: boolean) => {
      isAway = is;
    },
    /** Lets one look be made after another for this time. */
    pass: async (ms: number) => {
      for (let gone = 0; gone < ms; gone += LOOK_MS) {
        await paused();
        await clock.advance(LOOK_MS);
      }
      await paused();
    },
  };
}

const reasonOf = (health: Health): string => health.parts.map(({ reason }) => reason).join();

test("collectForgotten: what its runtime forgot is gone after the grace; a process or a Pod keeps the others", async (t) => {
  const { collected, left, pass, events, lines } = await node(t, {});
  await pass(GRACE_MS - LOOK_MS);
  assert.deepEqual(collected, []);
  await pass(LOOK_MS);
  assert.deepEqual(collected, ["forgotten"]);
  await pass(2 * GRACE_MS);
  assert.deepEqual(left().sort(), ["of-a-pod", "running"]);
  assert.deepEqual(
    events.map(({ reason, regarding }) => [reason, regarding.kind, regarding.name]),
    [["AttachmentCollected", "Node", "n1"]],
  );
  assert.match(events[0]?.note ?? "", /sandbox forgotten .*10\.1\.0\.0/);
  assert.equal(lines.filter((line) => line.includes("an attachment was removed")).length, 1);
});

test("collectForgotten: while the API server is away, and where processes are not seen, nothing is collected", async (t) => {
  const bed = await node(t, {});
  bed.away(true);
  await bed.pass(3 * GRACE_MS);
  assert.deepEqual(bed.collected, []);
  assert.match(reasonOf(bed.health), /away/);
  bed.away(false);
  await bed.pass(12 * GRACE_MS);
  assert.deepEqual(bed.collected, ["forgotten"]);
  const blind = await node(t, { processes: () => undefined });
  await blind.pass(3 * GRACE_MS);
  assert.deepEqual([blind.collected, blind.lists()], [[], 0]);
  assert.match(reasonOf(blind.health), /--cri-socket, or hostPID/);
});

test("collectForgotten: a Pod without an address may have any sandbox without a process, as one of CRI-O has while it pulls an image; with another first interface a sandbox is not judged", async (t) => {
  const bed = await node(t, {});
  const pulling = { metadata: { namespace: "ns", name: "slow" }, spec: {}, status: { phase: "Pending" } };
  const ended = { metadata: { name: "job" }, spec: {}, status: { phase: "Succeeded" } };
  bed.pods.push(ended, pulling);
  await bed.pass(3 * GRACE_MS);
  assert.deepEqual(bed.collected, []);
  assert.match(reasonOf(bed.health), /Pod ns\/slow has no address yet/);
  bed.pods.pop();
  await bed.pass(2 * GRACE_MS);
  assert.deepEqual(bed.collected, ["forgotten"]);
  const second = await node(t, { ifname: "net1" });
  await second.pass(3 * GRACE_MS);
  assert.deepEqual([second.collected, second.lists()], [[], 0]);
});

test("collectForgotten: a runtime at --cri-socket says which sandboxes it has; one that does not answer keeps all", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-cri-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const criSocket = join(folder, "containerd.sock");
  const bed = await node(t, { criSocket });
  await bed.pass(3 * GRACE_MS);
  assert.deepEqual(bed.collected, []);
  assert.match(reasonOf(bed.health), /cannot reach the container runtime at .*containerd\.sock/);
  const listed = new ProtoWriter().message(1, new ProtoWriter().string(1, "forgotten").finish()).finish();
  await using _runtime = await serveGrpc({
    socketPath: criSocket,
    clock: systemClock,
    handlers: { [LIST_SANDBOXES]: async () => listed },
    onBug: (error) => {
      throw error;
    },
  });
  await bed.pass(6 * GRACE_MS);
  // The process in it is somebody's who looks: the runtime's word counts.
  assert.deepEqual(bed.collected, ["running"]);
});
