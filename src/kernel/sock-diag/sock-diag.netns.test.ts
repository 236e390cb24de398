import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { close } from "#kernel/ffi";
import { openKernel } from "#kernel/net";
import { bindUdp, listenTcp } from "#kernel/socket";
import { FakeSockDiag, openSockDiag, takes } from "./index.ts";

const at = (text: string): IpAddress => IpAddress.parse(text);

test("sock-diag: listening TCP and unconnected UDP sockets of both families, of this namespace alone, and none that is closed", () => {
  const kernel = openKernel();
  const name = `isk-${process.pid}`;
  const netns = kernel.createNetNs(name);
  using stack = kernel.openStack(netns);
  using sockets = openSockDiag(netns);
  const lo = stack.links.list().find((one) => one.name === "lo");
  assert.ok(lo !== undefined);
  stack.links.set(lo.index, { up: true });
  try {
    assert.deepEqual(sockets.listeners(), []);
    const fds = [
      listenTcp(at("127.0.0.1"), 22, { netns }),
      listenTcp(at("0.0.0.0"), 80, { netns }),
      listenTcp(at("::"), 443, { netns }),
      listenTcp(at("::"), 444, { netns, v6Only: false }),
      bindUdp(at("::1"), 53, { netns }),
    ];
    const fake = new FakeSockDiag();
    fake.sockets.push(
      { protocol: "TCP", address: at("127.0.0.1"), port: 22, isOneFamily: true },
      { protocol: "TCP", address: at("0.0.0.0"), port: 80, isOneFamily: true },
      { protocol: "TCP", address: at("::"), port: 443, isOneFamily: true },
      { protocol: "TCP", address: at("::"), port: 444, isOneFamily: false },
      { protocol: "UDP", address: at("::1"), port: 53, isOneFamily: true },
    );
    for (const { listeners } of [{ listeners: sockets.listeners() }, { listeners: fake.listeners() }]) {
      const isTaken = (address: string, protocol: string, port: number): boolean =>
        listeners.some((one) => takes(one, at(address), protocol, port));
      assert.equal(listeners.length, fds.length);
      assert.deepEqual(
        [isTaken("127.0.0.1", "TCP", 22), isTaken("192.0.2.1", "TCP", 22), isTaken("127.0.0.1", "UDP", 22)],
        [true, false, false],
      );
      assert.deepEqual([isTaken("192.0.2.1", "TCP", 80), isTaken("2001:db8::1", "TCP", 80)], [true, false]);
      assert.deepEqual([isTaken("192.0.2.1", "TCP", 443), isTaken("2001:db8::1", "TCP", 443)], [false, true]);
      assert.deepEqual([isTaken("192.0.2.1", "TCP", 444), isTaken("2001:db8::1", "TCP", 444)], [true, true]);
      assert.deepEqual([isTaken("::1", "UDP", 53), isTaken("2001:db8::1", "UDP", 53)], [true, false]);
    }
    for (const fd of fds) close(fd);
    assert.deepEqual(sockets.listeners(), []);
  } finally {
    kernel.deleteNetNs(name);
  }
});
