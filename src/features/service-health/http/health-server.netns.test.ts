import assert from "node:assert/strict";
import { once } from "node:events";
import { Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { type NetNs, openKernel } from "#kernel/net";
import { openTcp } from "#kernel/socket";
import { NodeHealth } from "../state/index.ts";
import { eventually, onBug, running } from "../testing/probe.ts";
import { HealthServer } from "./index.ts";

const kernel = openKernel();
const NAMES = ["a", "b"].map((letter) => `isthmus-sh-${process.pid}-${letter}`);

/** The answer to a probe of port 10256 sent inside a namespace. */
async function probeInside(netns: NetNs, host: string): Promise<string> {
  const address = IpAddress.parse(host);
  const socket = new Socket({ fd: openTcp(address.family, { netns }) });
  socket.connect({ host, port: 10_256 });
  socket.write("GET /healthz HTTP/1.0\r\n\r\n");
  let text = "";
  socket.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  await once(socket, "close");
  return text;
}

test("HealthServer: listens only in the given namespace, so that several nodes' proxies share a machine", async () => {
  const spaces = NAMES.map((name) => kernel.createNetNs(name));
  try {
    for (const netns of spaces) {
      using stack = kernel.openStack(netns);
      stack.links.set(1, { up: true });
    }
    const healthy = new NodeHealth({
      healthTimeoutMs: 1000,
      startup: "compatible",
      drainsTerminatingNodes: false,
      clock: systemClock,
    });
    const pending = new NodeHealth({ healthTimeoutMs: 1000, clock: systemClock });
    const address = { host: "0.0.0.0", port: 10_256 };
    const servers = [healthy, pending].map(
      (health, at) =>
        new HealthServer(
          { health, netns: spaces[at], clock: systemClock, log: nullLogger, onBug },
          { address, lingerMs: 0 },
        ),
    );
    const [one, other] = servers.map(running);
    for (const server of servers) await eventually(() => server.port);
    for (const host of ["127.0.0.1", "::1"]) {
      const codes = await Promise.all(spaces.map((netns) => probeInside(netns, host)));
      assert.match(codes[0] ?? "", /^HTTP\/1\.1 200 /, host);
      assert.match(codes[1] ?? "", /^HTTP\/1\.1 503 /, host);
    }
    await one?.[Symbol.asyncDispose]();
    await other?.[Symbol.asyncDispose]();
  } finally {
    for (const netns of spaces) netns[Symbol.dispose]();
    for (const name of NAMES) kernel.deleteNetNs(name);
  }
});
