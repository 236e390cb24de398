import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";
import type { PacketStreamHandlers } from "../link/packet-stream.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { ServerAddresses, type ServerAddressesDeps } from "./server-addresses.ts";

/** More servers than addresses: an address may be a balancer's. */
const options = { signal: new AbortController().signal, servers: 4 };

/** Streams that the test ends. Addresses in `down` refuse. */
function network(resolve: Readonly<Record<string, readonly string[]>> = {}) {
  const asked: string[] = [];
  const down = new Set<string>();
  /** Answers by address, each as late as the test wants. */
  const silent = new Map<string, Promise<void>>();
  const clock = new FakeClock();
  const discarded: string[] = [];
  const ended: string[] = [];
  const open: { readonly address: string; readonly handlers: PacketStreamHandlers }[] = [];
  const connect: ServerAddressesDeps["connect"] = async ({ host, port, name }, { signal }) => {
    asked.push(`${name}=${host}:${port}`);
    signal.addEventListener("abort", () => ended.push(host));
    await silent.get(host);
    if (down.has(host)) throw new LinkError("unreachable", `${host} is down`);
    return {
      headers: {},
      pulse: new FakePulse(),
      onLeaving: () => undefined,
      discard: () => void discarded.push(host),
      start: (handlers) => {
        open.push({ address: host, handlers });
        return {
          isWritable: true,
          queuedBytes: 0,
          bytesSent: 0,
          send: () => undefined,
          pause: () => undefined,
          resume: () => undefined,
          end: () => undefined,
          destroy: () => undefined,
        };
      },
    };
  };
  const lookup = async (host: string): Promise<readonly string[]> => {
    const found = resolve[host];
    if (found === undefined) throw new Error(`getaddrinfo ENOTFOUND ${host}`);
    return found;
  };
  return { asked, down, open, silent, clock, discarded, ended, deps: { clock, connect, resolve: lookup } };
}

const handlers: PacketStreamHandlers = {
  onPacket: () => undefined,
  onEnd: () => undefined,
  onWritable: () => undefined,
  onClosed: () => undefined,
};

test("ServerAddresses: every address of a name gets a stream before any gets a second", async () => {
  const { deps, asked, open } = network({ proxy: ["192.0.2.1", "192.0.2.2", "2001:db8::3"] });
  const addresses = new ServerAddresses(deps, [{ host: "proxy", port: 8091 }]);
  for (let at = 0; at < 3; at += 1) (await addresses.connect(options))?.start(handlers);
  assert.deepEqual(asked, ["proxy=192.0.2.1:8091", "proxy=192.0.2.2:8091", "proxy=2001:db8::3:8091"]);
  // All have a stream: the address that was tried longest ago may be a balancer.
  (await addresses.connect(options))?.discard();
  assert.equal(asked.at(-1), "proxy=192.0.2.1:8091");
  open[1]?.handlers.onClosed(undefined);
  await addresses.connect(options);
  assert.equal(asked.at(-1), "proxy=192.0.2.2:8091");
});

test("ServerAddresses: an address that does not answer does not delay the others until the next round", async () => {
  const { deps, asked, down } = network();
  const servers = ["192.0.2.1", "192.0.2.2"].map((host) => ({ host, port: 1 }));
  const addresses = new ServerAddresses(deps, servers);
  down.add("192.0.2.1");
  (await addresses.connect(options))?.start(handlers);
  assert.equal(asked.length, 2);
});

test("ServerAddresses: beside an address that is silent the next one is tried after half a second, and one stream is kept", async () => {
  const { deps, asked, silent, clock, discarded, ended } = network();
  const late = Promise.withResolvers<void>();
  silent.set("192.0.2.1", late.promise);
  const servers = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map((host) => ({ host, port: 1 }));
  const addresses = new ServerAddresses(deps, servers);
  const connecting = addresses.connect(options);
  await clock.advance(499);
  assert.equal(asked.length, 1);
  await clock.advance(1);
  (await connecting)?.start(handlers);
  assert.deepEqual([asked.length, ended.includes("192.0.2.1"), clock.pending], [2, true, 0]);
  // It answers after all.
  late.resolve();
  await clock.advance(0);
  assert.deepEqual(discarded, ["192.0.2.1"]);
});

test("ServerAddresses: a slow server is waited for, also if other addresses lead to servers that have a stream", async () => {
  const { deps, asked, silent, clock, discarded, ended } = network();
  const servers = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map((host) => ({ host, port: 1 }));
  const addresses = new ServerAddresses(deps, servers);
  const late = Promise.withResolvers<void>();
  silent.set("192.0.2.1", late.promise);
  // The others are a second address of a server, and a balancer.
  let isNew = false;
  const connecting = addresses.connect({ ...options, isNew: () => isNew });
  await clock.advance(4000);
  // 192.0.2.2 after half a second, 192.0.2.3 at once then, and as long as chance may be the reason one of them each half second.
  assert.deepEqual([asked.length, discarded.length, ended.length], [10, 9, 0]);
  isNew = true;
  late.resolve();
  await clock.advance(0);
  const stream = await connecting;
  stream?.start(handlers);
  assert.deepEqual([stream !== undefined, discarded.includes("192.0.2.1"), clock.pending], [true, false, 0]);
});

test("ServerAddresses: where only servers answer that have a stream, there is none", async () => {
  const { deps, asked, down, discarded } = network();
  const servers = ["192.0.2.1", "192.0.2.2"].map((host) => ({ host, port: 1 }));
  const addresses = new ServerAddresses(deps, servers);
  const round = { ...options, isNew: () => false };
  assert.equal(await addresses.connect(round), undefined);
  assert.deepEqual([asked.length, discarded.length], [2, 2]);
  (await addresses.connect(options))?.start(handlers);
  down.add("192.0.2.2");
  const told: string[] = [];
  const onUnanswered = ({ message }: LinkError): unknown => told.push(message);
  assert.equal(await addresses.connect({ ...round, onUnanswered }), undefined);
  assert.deepEqual([told, discarded], [["192.0.2.2 is down"], ["192.0.2.1", "192.0.2.2", "192.0.2.1"]]);
});

test("ServerAddresses: an address with a stream is tried only when no other answers, the one tried longest ago, and that is told", async () => {
  const { deps, asked, down } = network({ proxy: ["192.0.2.1", "192.0.2.2", "2001:db8::3"] });
  const addresses = new ServerAddresses(deps, [{ host: "proxy", port: 1 }]);
  const untold = { ...options, onUnanswered: assert.fail };
  for (let at = 0; at < 2; at += 1) (await addresses.connect(untold))?.start(handlers);
  down.add("2001:db8::3");
  const told: string[] = [];
  const round = { ...options, onUnanswered: (error: LinkError) => told.push(error.message) };
  for (let at = 0; at < 3; at += 1) (await addresses.connect(round))?.discard();
  const without = "proxy=2001:db8::3:1";
  assert.deepEqual(asked.slice(2), [
    ...[without, "proxy=192.0.2.1:1"],
    ...[without, "proxy=192.0.2.2:1"],
    ...[without, "proxy=192.0.2.1:1"],
  ]);
  assert.deepEqual(told, Array(3).fill("2001:db8::3 is down"));
  for (const address of ["192.0.2.1", "192.0.2.2"]) down.add(address);
  await assert.rejects(addresses.connect(round), /192\.0\.2\.2 is down/);
  assert.equal(asked.length, 10, "one of them");
  down.clear();
  (await addresses.connect(untold))?.start(handlers);
  assert.equal(asked.at(-1), without);
});

test("ServerAddresses: the only address, that of a balancer, is tried every time", async () => {
  const { deps, asked } = network();
  const addresses = new ServerAddresses(deps, [{ host: "192.0.2.1", port: 1 }]);
  for (let at = 0; at < 3; at += 1) (await addresses.connect(options))?.start(handlers);
  assert.equal(asked.length, 3);
});

test("ServerAddresses: unresolvable names matter only if no other name resolves", async () => {
  const { deps, asked } = network({ good: ["192.0.2.1"] });
  await new ServerAddresses(deps, [
    { host: "bad", port: 1 },
    { host: "good", port: 2 },
  ]).connect(options);
  assert.deepEqual(asked, ["good=192.0.2.1:2"]);
  const none = new ServerAddresses(deps, [{ host: "bad", port: 1 }]).connect(options);
  await assert.rejects(none, { name: "LinkError", code: "unreachable", message: /ENOTFOUND bad/ });
});

test("ServerAddresses: an abort ends the round", async () => {
  const controller = new AbortController();
  const { deps } = network();
  const connect = async (): Promise<OpenedStream> => {
    controller.abort(new Error("enough"));
    throw new LinkError("unreachable", "down");
  };
  const servers = ["192.0.2.1", "192.0.2.2"].map((host) => ({ host, port: 1 }));
  await assert.rejects(
    new ServerAddresses({ ...deps, connect }, servers).connect({ ...options, signal: controller.signal }),
    /enough/,
  );
});

for (const [servers, quick] of [
  [3, 0],
  [4, 20],
] as const) {
  test(`ServerAddresses: of ${servers} servers at three addresses, one of them down, the others are tried again in ${quick} rounds and then in every tenth`, async () => {
    const { deps, asked, down, open } = network({ proxy: ["192.0.2.1", "192.0.2.2", "192.0.2.3"] });
    const addresses = new ServerAddresses(deps, [{ host: "proxy", port: 1 }]);
    const round = { ...options, servers };
    for (let at = 0; at < 3; at += 1) (await addresses.connect(round))?.start(handlers);
    down.add("192.0.2.3");
    open[2]?.handlers.onClosed(undefined);
    const tried = async (rounds: number): Promise<number> => {
      const before = asked.length;
      for (let at = 0; at < rounds; at += 1) {
        const stream = await addresses.connect(round).catch((error: unknown) => assert.ok(error instanceof LinkError));
        stream?.discard();
      }
      return asked.length - before - rounds;
    };
    assert.equal(await tried(2 * quick), 2 * quick, "both live addresses are balancers'");
    assert.ok((await tried(100)) <= 20);
    open[1]?.handlers.onClosed(undefined);
    (await addresses.connect(round))?.start(handlers);
    assert.equal(await tried(quick), quick, "a stream has changed");
  });
}
