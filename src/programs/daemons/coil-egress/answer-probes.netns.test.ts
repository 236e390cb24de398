import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { encodeProbe, newProbeToken } from "#features/egress";
import { openKernel } from "#kernel/net";
import { bindUdp } from "#kernel/socket";
import { answerProbes } from "./answer-probes.ts";

const PORT = 5556;

test("answerProbes: it answers questions alone, and a port that was taken is bound when it is free", async () => {
  const kernel = openKernel();
  using netns = kernel.createAnonymousNetNs();
  using stack = kernel.openStack(netns);
  stack.links.set(1, { up: true });
  const address = IpAddress.parse("127.0.0.1");
  const taken = createSocket("udp4");
  taken.bind({ fd: bindUdp(address, PORT, { netns }), exclusive: true });
  const health: string[] = [];
  const part = { ok: () => health.push("ok"), degraded: () => health.push("degraded") };
  const told = async (state: string): Promise<void> => {
    const until = (): boolean => health.includes(state);
    assert.ok(await poll(until, { until: Boolean, everyMs: 10, deadlineMs: 5000, clock: systemClock }), state);
  };
  const controller = new AbortController();
  const { signal } = controller;
  const running = answerProbes(
    { health: part, log: nullLogger, clock: systemClock },
    { address, port: PORT, netns },
    { signal },
  );
  const client = createSocket("udp4");
  try {
    client.bind({ fd: bindUdp(address, 0, { netns }), exclusive: true });
    await told("degraded");
    taken.close();
    await told("ok");
    const token = newProbeToken();
    const arrived = once(client, "message", { signal: AbortSignal.timeout(5000) });
    // Neither has an answer, or it would be the first one.
    client.send("anything", PORT, "127.0.0.1");
    client.send(encodeProbe({ kind: "answer", token: newProbeToken() }), PORT, "127.0.0.1");
    client.send(encodeProbe({ kind: "question", token }), PORT, "127.0.0.1");
    const [answer] = (await arrived) as [Buffer];
    assert.deepEqual(answer, encodeProbe({ kind: "answer", token }));
  } finally {
    controller.abort();
    client.close();
    await running;
  }
});
