import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { bindUdp } from "#kernel/socket";
import { openProbeSocket } from "./probe-socket.ts";

test("openProbeSocket: a process of the pod that floods it closes it, once, and what came before was passed on", async () => {
  const kernel = openKernel();
  using netns = kernel.createAnonymousNetNs();
  using stack = kernel.openStack(netns);
  stack.links.set(1, { up: true });
  const address = IpAddress.parse("127.0.0.1");
  const lines: string[] = [];
  let passed = 0;
  using probes = openProbeSocket(
    netns,
    address,
    () => {
      passed += 1;
    },
    createLogger({ name: "t", write: (line) => lines.push(line) }),
  );
  const sender = createSocket("udp4");
  sender.bind({ fd: bindUdp(address, 0, { netns }), exclusive: true });
  sender.on("error", () => undefined);
  try {
    sender.send("one", probes.port, "127.0.0.1");
    const seen = await poll(() => passed, {
      until: (count) => count === 1,
      everyMs: 5,
      deadlineMs: 5000,
      clock: systemClock,
    });
    assert.deepEqual([seen, probes.isOpen], [1, true]);
    const flood = (): boolean => {
      for (let at = 0; at < 300; at += 1) sender.send("x", probes.port, "127.0.0.1");
      return probes.isOpen;
    };
    assert.equal(
      await poll(flood, { until: (isOpen) => !isOpen, everyMs: 5, deadlineMs: 10_000, clock: systemClock }),
      false,
    );
    assert.ok(passed <= 1001, `${passed} datagrams`);
    assert.equal(lines.filter((line) => line.includes("more than answers")).length, 1);
  } finally {
    sender.close();
  }
});
