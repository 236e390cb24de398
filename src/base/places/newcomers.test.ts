import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { groupOf, Newcomers, type NewcomersOptions } from "./index.ts";

test("groupOf: an IPv4 address, mapped or not; of IPv6 the first 64 bits, however they are written", () => {
  const cases = {
    "192.0.2.1": "192.0.2.1",
    "::ffff:192.0.2.1": "192.0.2.1",
    "2001:db8:1:2:3:4:5:6": "2001:db8:1:2",
    "2001:db8::1": "2001:db8:0:0",
    "fe80::1%eth0": "fe80:0:0:0",
    "::1": "0:0:0:0",
  };
  for (const [address, group] of Object.entries(cases)) assert.equal(groupOf(address), group, address);
  assert.equal(groupOf(undefined), "local");
});

/** A listener with places for newcomers; clients come from addresses of loopback. */
async function listen(t: TestContext, options: Omit<NewcomersOptions, "clock">) {
  const clock = new FakeClock();
  const newcomers = new Newcomers({ ...options, clock });
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy()).resume();
    newcomers.admit(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const clients = new Set<Socket>();
  t.after(() => {
    for (const client of clients) client.destroy();
    server.close();
  });
  /** Resolves with the client's socket and the server's. */
  const come = async (localAddress: string): Promise<{ readonly client: Socket; readonly socket: Socket }> => {
    const accepted = once(server, "connection");
    const { port } = server.address() as AddressInfo;
    const client = connect({ host: "127.0.0.1", port, localAddress });
    client.on("error", () => client.destroy()).resume();
    clients.add(client);
    const [socket] = (await accepted) as [Socket];
    return { client, socket };
  };
  return { newcomers, clock, come };
}

const ended = (client: Socket): Promise<void> =>
  new Promise((resolve) => {
    if (client.closed) resolve();
    else client.once("close", () => resolve());
  });
const [STRANGER, OTHER, GOOD] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"] as const;

test("Newcomers: an address at its bound loses its own oldest connection, and nobody else's, when the next one comes", async (t) => {
  const { newcomers, clock, come } = await listen(t, { max: 10, maxPerAddress: 2, graceMs: 1000 });
  const good = await come(GOOD);
  const first = await come(STRANGER);
  const second = await come(STRANGER);
  await clock.advance(1000);
  const third = await come(STRANGER);
  await ended(first.client);
  assert.deepEqual(
    [good, second, third].map(({ client }) => client.closed),
    [false, false, false],
  );
  assert.deepEqual([newcomers.size, newcomers.refused], [3, 1]);
});

test("Newcomers: clients of one address that come at once have their time: the next one is refused, not the one under way", async (t) => {
  const { newcomers, clock, come } = await listen(t, { max: 10, maxPerAddress: 2, graceMs: 1000 });
  const first = await come(STRANGER);
  const second = await come(STRANGER);
  await clock.advance(999);
  await ended((await come(STRANGER)).client);
  assert.deepEqual(
    [first, second].map(({ client }) => client.closed),
    [false, false],
  );
  newcomers.known(first.socket);
  const third = await come(STRANGER);
  assert.deepEqual([newcomers.size, third.client.closed], [2, false]);
});

test("Newcomers: at the bound of the listener the address with the most loses its oldest, however new that is", async (t) => {
  const { newcomers, come } = await listen(t, { max: 4, maxPerAddress: 3 });
  const one = await come(OTHER);
  const [first, second, third] = [await come(STRANGER), await come(STRANGER), await come(STRANGER)];
  const good = await come(GOOD);
  await ended(first.client);
  assert.deepEqual(
    [one, second, third, good].map(({ client }) => client.closed),
    [false, false, false, false],
  );
  assert.equal(newcomers.size, 4);
});

test("Newcomers: an address of a balancer has the places of the listener, and no more", async (t) => {
  const { newcomers, clock, come } = await listen(t, {
    max: 4,
    maxPerAddress: 1,
    graceMs: 1000,
    isShared: (address) => address === OTHER,
  });
  const all = [await come(OTHER), await come(OTHER), await come(OTHER), await come(OTHER)];
  assert.equal(newcomers.size, 4);
  await ended((await come(OTHER)).client);
  assert.deepEqual(
    all.map(({ client }) => client.closed),
    [false, false, false, false],
  );
  await clock.advance(1000);
  await come(OTHER);
  await ended(all[0]?.client ?? assert.fail());
  assert.equal(newcomers.size, 4);
});

test("Newcomers: a balancer's connection counts for the client that it names: that one's bound holds for it", async (t) => {
  const options = { max: 10, maxPerAddress: 1, graceMs: 1000, isShared: (address: string) => address === OTHER };
  const { newcomers, clock, come } = await listen(t, options);
  const [one, two, three] = [await come(OTHER), await come(OTHER), await come(OTHER)];
  assert.equal(newcomers.attribute(one.socket, "198.51.100.1"), true);
  assert.equal(newcomers.attribute(two.socket, "198.51.100.2"), true);
  assert.equal(newcomers.attribute(three.socket, "198.51.100.1"), false);
  await ended(three.client);
  assert.equal(newcomers.size, 2);
  await clock.advance(1000);
  const four = await come(OTHER);
  assert.equal(newcomers.attribute(four.socket, "::ffff:198.51.100.1"), true);
  await ended(one.client);
  assert.deepEqual([newcomers.size, two.client.closed, four.client.closed], [2, false, false]);
  newcomers.known(four.socket);
  assert.equal(newcomers.size, 1);
  assert.equal(newcomers.attribute(four.socket, "198.51.100.3"), false, "it has no place any more");
});

test("Newcomers: a connection that ended, or is known, has no place any more", async (t) => {
  const { newcomers, come } = await listen(t, { max: 2 });
  const [one, other] = [await come(GOOD), await come(OTHER)];
  newcomers.known(one.socket);
  assert.equal(newcomers.size, 1);
  other.client.destroy();
  if (!other.socket.closed) await once(other.socket, "close");
  assert.equal(newcomers.size, 0);
  await come(STRANGER);
  assert.equal(one.client.closed, false);
});
