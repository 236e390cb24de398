import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { C, close, getsockopt } from "#kernel/ffi";
import { openKernel } from "#kernel/net";
import { listenTcp, localEndpoint, openIcmpSocket, openTcp, whenReadable } from "./index.ts";

const NAME = `isk-sock-${process.pid}`;
const kernel = openKernel();
const LOOPBACK = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;

function withNamespace(
  name: string,
  work: (ns: ReturnType<typeof kernel.createNetNs>) => Promise<void>,
): () => Promise<void> {
  return async () => {
    using ns = kernel.createNetNs(name);
    try {
      using stack = kernel.openStack(ns);
      stack.links.set(1, { up: true });
      await work(ns);
    } finally {
      kernel.deleteNetNs(name);
    }
  };
}

test(
  "openIcmpSocket: pings inside another namespace and gets its own replies only",
  withNamespace(`${NAME}-a`, async (netns) => {
    for (const family of [4, 6] as const) {
      using mine = openIcmpSocket(family, { netns, id: 7 });
      using other = openIcmpSocket(family, { netns, id: 8 });
      assert.equal(mine.send(LOOPBACK[family], 41, Buffer.from("ping")), true);
      const [ready] = await whenReadable([mine], { atMostMs: 2000, clock: systemClock });
      assert.equal(ready, mine);
      const replies = mine.receive();
      assert.equal(replies.length, 1);
      assert.equal(replies[0]?.sequence, 41);
      assert.equal(replies[0]?.payload.toString(), "ping");
      assert.equal(replies[0]?.from.toString(), LOOPBACK[family].toString());
      assert.deepEqual(other.receive(), []);
    }
  }),
);

test(
  "openIcmpSocket: a destination without a route is unreachable at once",
  withNamespace(`${NAME}-b`, async (netns) => {
    using ping = openIcmpSocket(4, { netns });
    assert.throws(
      () => ping.send(IpAddress.parse("198.51.100.1"), 1),
      (error) => isKernelError(error, "unreachable"),
    );
  }),
);

test(
  "listenTcp and openTcp: Node serves and connects in another namespace through their descriptors",
  withNamespace(`${NAME}-c`, async (netns) => {
    for (const family of [4, 6] as const) {
      const fd = listenTcp(LOOPBACK[family], 0, { netns });
      const { port } = localEndpoint(fd);
      const server = createServer((socket) => socket.end(`from ${socket.remoteAddress}`)).listen({ fd });
      const clientFd = openTcp(family, {
        netns,
        mark: 5,
        device: "lo",
        source: LOOPBACK[family],
        bindAddressNoPort: true,
      });
      assert.equal(getsockopt(clientFd, C.SOL_SOCKET, C.SO_MARK), 5);
      const client = new Socket({ fd: clientFd });
      client.connect({ host: LOOPBACK[family].toString(), port });
      const [data] = await once(client, "data");
      assert.equal(String(data), `from ${LOOPBACK[family]}`);
      client.destroy();
      server.close();
      await once(server, "close");
    }
  }),
);

test(
  "listenTcp: a taken port is busy, a foreign address is not found unless freebind",
  withNamespace(`${NAME}-d`, async (netns) => {
    const fd = listenTcp(LOOPBACK[4], 0, { netns });
    const { port } = localEndpoint(fd);
    assert.throws(
      () => listenTcp(LOOPBACK[4], port, { netns }),
      (error) => isKernelError(error, "busy"),
    );
    const foreign = IpAddress.parse("203.0.113.1");
    assert.throws(
      () => listenTcp(foreign, 0, { netns }),
      (error) => isKernelError(error, "not-found"),
    );
    close(listenTcp(foreign, 0, { netns, freebind: true }));
    close(fd);
  }),
);
