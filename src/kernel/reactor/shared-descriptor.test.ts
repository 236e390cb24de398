// own process: it counts the rounds of its event loop
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, TcpListener } from "./index.ts";

const COUNT_MS = 200;

/** Rounds of the event loop in {@link COUNT_MS}. */
async function rounds(): Promise<number> {
  const before = performance.nodeTiming.uvMetricsInfo.loopCount;
  await new Promise((resolve) => setTimeout(resolve, COUNT_MS));
  return performance.nodeTiming.uvMetricsInfo.loopCount - before;
}

test("Reactor: a closed listener whose descriptor another process holds does not wake the event loop", async (t) => {
  const address = IpAddress.parse("127.0.0.1");
  const fd = listenTcp(address, 0);
  const { port } = localEndpoint(fd);
  const accepted = (): void => assert.fail("it is closed");
  const listener = new TcpListener(fd, { onClient: accepted, onError: accepted, onFault: accepted });
  const holder = spawn("sleep", ["60"], { stdio: ["ignore", "ignore", "ignore", fd] });
  t.after(() => holder.kill());
  await once(holder, "spawn");
  listener.close();
  const client = await connectTcp({ address, port });
  t.after(() => client.destroy());
  const count = await rounds();
  assert.ok(count < 50, `${count} rounds in ${COUNT_MS} ms`);
});
