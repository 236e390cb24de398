import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { bindUdp, localEndpoint } from "#kernel/socket";
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

for (const text of ["127.0.0.1", "::1"])
  test(`openProbeSocket: what a kernel refuses since nobody listens is told with its bytes and destination, and the socket goes on, ${text}`, async () => {
    const kernel = openKernel();
    using netns = kernel.createAnonymousNetNs();
    using stack = kernel.openStack(netns);
    stack.links.set(1, { up: true });
    const address = IpAddress.parse(text);
    const told: string[] = [];
    using probes = openProbeSocket(
      netns,
      address,
      (bytes, from) =>
        told.push(`${bytes} ${from.isRefused === true ? "refused" : "from"} ${from.address} ${from.port}`),
      createLogger({ name: "t", write: () => undefined }),
    );
    const fd = bindUdp(address, 0, { netns });
    const { port } = localEndpoint(fd);
    const server = createSocket(address.family === 4 ? "udp4" : "udp6");
    server.bind({ fd, exclusive: true });
    server.on("message", (bytes, from) => server.send(bytes, from.port, from.address));
    const wait = { until: (count: number) => count > 0, everyMs: 5, deadlineMs: 5000, clock: systemClock };
    const ask = async (question: string, to: number): Promise<string> => {
      told.length = 0;
      probes.send(Buffer.from(question), { address, port: to });
      await poll(() => told.length, wait);
      return told.join();
    };
    try {
      assert.equal(await ask("one", 9), `one refused ${text} 9`);
      assert.equal(await ask("two", port), `two from ${text} ${port}`);
      assert.equal(await ask("three", 9), `three refused ${text} 9`);
      // An error that was not read yet loses no probe.
      told.length = 0;
      for (const to of [9, port]) probes.send(Buffer.from("four"), { address, port: to });
      await poll(() => told.length, { ...wait, until: (count) => count === 2 });
      assert.deepEqual(told.toSorted(), [`four from ${text} ${port}`, `four refused ${text} 9`]);
      assert.equal(probes.isOpen, true);
    } finally {
      server.close();
    }
  });
