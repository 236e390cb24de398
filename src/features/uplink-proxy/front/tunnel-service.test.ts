import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { SelectError } from "../select/index.ts";
import { FrontBed, TIMEOUT, waitBytes } from "../testing/front-bed.ts";
import { clientHello, serverFor, TestClient } from "../testing/proxy-fixtures.ts";

test(
  "TunnelService: a tunnel that gets no answer goes on over another uplink, and the client does not notice",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    const hole = await serverFor(t, (socket) => socket.resume());
    const { dial } = bed;
    const excepted: string[][] = [];
    bed.dial = (request) => {
      excepted.push([...(request.except ?? [])]);
      return excepted.length === 1
        ? bed.connected(hole.port, "eth0", { isHole: true })
        : bed.connected(hole.port, "eth1", { isHole: true });
    };
    const hello = clientHello("a.example");
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await client.read("200");
    client.socket.write(hello);
    while (bed.counters.activeTunnels === 0 || hole.clients.size === 0)
      await new Promise((resolve) => setImmediate(resolve));
    await waitBytes([...hole.clients][0], hello.length);
    await bed.clock.advance(6000);
    while (bed.counters.replays === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(excepted, [[], ["eth0"]]);
    assert.deepEqual(
      bed.penalties.list().map(({ destination, uplink: name }) => `${name} ${destination}`),
      ["eth0 a.example:443"],
    );
    // The second swallows too; the third does not.
    bed.dial = dial;
    await bed.clock.advance(6000);
    assert.equal((await client.read(hello.toString("latin1"))).length, 19 + hello.length);
    assert.deepEqual([bed.counters.replays, bed.counters.blackholes], [2, 2]);
    assert.deepEqual(bed.evidence.lines, [
      "blackholed eth0 a.example:443",
      "blackholed eth1 a.example:443",
      "first-byte eth0 a.example:443",
    ]);
    // A byte over the uplink clears what was held against it.
    assert.deepEqual(
      bed.penalties.list().map(({ uplink: name }) => name),
      ["eth1"],
    );
  },
);

test(
  "TunnelService: without another uplink a silent destination is waited for; with one, a tunnel that cannot be replayed is reset",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    const hole = await serverFor(t, (socket) => socket.resume());
    bed.dial = () => bed.connected(hole.port, "eth0", { isHole: true });
    const open = async (): Promise<TestClient> => {
      const client = await TestClient.to(t, bed.port);
      client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
      await client.read("200");
      return client;
    };
    bed.hasAlternative = false;
    const waiting = await open();
    await waitBytes([...hole.clients][0], 18);
    await bed.clock.advance(7000);
    assert.equal(waiting.isEnded || waiting.isClosed, false);
    bed.hasAlternative = true;
    const reset = await open();
    await bed.clock.advance(7000);
    await reset.until(({ isClosed }) => isClosed);
    assert.equal(reset.error?.code, "ECONNRESET");
    waiting.socket.resetAndDestroy();
    while (bed.tunnelService.size > 0) await new Promise((resolve) => setImmediate(resolve));
    const { SuccessCount, FailureCount } = bed.counters.map.document().eth0 ?? assert.fail();
    assert.deepEqual([SuccessCount, FailureCount], [0, 2]);
    assert.equal(bed.counters.replays, 0);
  },
);

test(
  "TunnelService: if the other uplink cannot be reached the first is waited for, and a late answer arrives",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    const late = await serverFor(t, (socket) => socket.resume());
    let replays = 0;
    bed.dial = async (request) => {
      if (request.except === undefined) return await bed.connected(late.port, "eth0", { isHole: true });
      replays += 1;
      const failed = { uplink: "eth1", ifName: "eth1", cost: 1, source: "", text: "no route to host" };
      throw new SelectError("dial-failed", "all attempts failed", [{ ...failed, failure: "unreachable" }]);
    };
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await client.read("200");
    const hello = clientHello("a.example");
    client.socket.write(hello);
    while (late.clients.size === 0) await new Promise((resolve) => setImmediate(resolve));
    await waitBytes([...late.clients][0], hello.length);
    await bed.clock.advance(20_000);
    assert.deepEqual([replays, client.isEnded, client.isClosed], [1, false, false]);
    assert.deepEqual(
      [...bed.counters.failureByPort],
      [
        ["eth0", 1],
        ["eth1", 1],
      ],
    );
    [...late.clients][0]?.write("late answer");
    await client.read("late answer");
  },
);

test(
  "TunnelService: a trial of an uplink ends with its first byte, its blackhole or its tunnel, or when the client says nothing",
  TIMEOUT,
  async (t) => {
    const ends: Readonly<Record<string, (bed: FrontBed, client: TestClient, far: Socket) => Promise<unknown>>> = {
      "a first byte": async (_bed, client, far) => {
        far.write("answer");
        await client.read("answer");
      },
      "a blackhole": async (bed, client) => {
        client.write("GET / HTTP/1.1\r\n\r\n");
        while (bed.counters.blackholes === 0) {
          await bed.clock.advance(100);
          await new Promise((resolve) => setImmediate(resolve));
        }
      },
      "its tunnel": async (bed, client) => {
        client.socket.resetAndDestroy();
        while (bed.tunnelService.size > 0) await new Promise((resolve) => setImmediate(resolve));
      },
      "a silent client": async (bed) => await bed.clock.advance(10_000),
    };
    for (const [name, end] of Object.entries(ends)) {
      const bed = await FrontBed.open(t);
      bed.hasAlternative = false;
      const far = await serverFor(t, (socket) => socket.resume());
      let ended = 0;
      const trial = {
        end: () => {
          ended += 1;
        },
      };
      bed.dial = async () => ({ ...(await bed.connected(far.port, "eth0", { isHole: true })), trial });
      const client = await TestClient.to(t, bed.port);
      client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
      await client.read("200");
      while (far.clients.size === 0) await new Promise((resolve) => setImmediate(resolve));
      await bed.clock.advance(4000);
      assert.equal(ended, 0, name);
      await end(bed, client, [...far.clients][0] ?? assert.fail());
      assert.ok(ended > 0, name);
      // No timer is left behind.
      bed.tunnelService.closeAll("drain");
      while (bed.tunnelService.size > 0) await new Promise((resolve) => setImmediate(resolve));
      assert.equal(bed.clock.pending, 0, name);
    }
  },
);

test("TunnelService: a trial whose connection is not used ends at once", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  const hole = await serverFor(t, (socket) => socket.resume());
  const dialled = new Deferred();
  const mayConnect = new Deferred();
  let ended = 0;
  const end = (): void => {
    ended += 1;
  };
  bed.dial = async (request) => {
    const isReplay = request.except !== undefined;
    if (!isReplay) return await bed.connected(hole.port, "eth0", { isHole: true });
    const won = await bed.connected(hole.port, "eth1");
    dialled.resolve();
    await mayConnect.promise;
    return { ...won, trial: { end } };
  };
  const client = await TestClient.to(t, bed.port);
  client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await client.read("200");
  const hello = clientHello("a.example");
  client.socket.write(hello);
  while (hole.clients.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await waitBytes([...hole.clients][0], hello.length);
  await bed.clock.advance(6000);
  await dialled.promise;
  [...hole.clients][0]?.write("late answer");
  await client.read("late answer");
  mayConnect.resolve();
  while (ended === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(bed.counters.replays, 0);
  // A client that has left while its destination was dialled.
  const connecting = new Deferred();
  const another = new Deferred();
  bed.dial = async () => {
    const won = await bed.connected(hole.port, "eth0");
    connecting.resolve();
    await another.promise;
    return { ...won, trial: { end } };
  };
  const gone = await TestClient.to(t, bed.port);
  gone.write("CONNECT b.example:443 HTTP/1.1\r\n\r\n");
  await connecting.promise;
  gone.socket.resetAndDestroy();
  await new Promise((resolve) => setTimeout(resolve, 50));
  another.resolve();
  while (ended === 1) await new Promise((resolve) => setImmediate(resolve));
});

test("TunnelService: an answer that comes while another uplink is dialled ends the dial", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  const late = await serverFor(t, (socket) => socket.resume());
  const aborted = new Deferred();
  bed.dial = (request) =>
    request.except === undefined
      ? bed.connected(late.port, "eth0", { isHole: true })
      : new Promise((_resolve, reject) => {
          request.signal.addEventListener("abort", () => {
            aborted.resolve();
            reject(request.signal.reason);
          });
        });
  const client = await TestClient.to(t, bed.port);
  client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await client.read("200");
  const hello = clientHello("a.example");
  client.socket.write(hello);
  while (late.clients.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await waitBytes([...late.clients][0], hello.length);
  await bed.clock.advance(6000);
  [...late.clients][0]?.write("late answer");
  await client.read("late answer");
  await aborted.promise;
  assert.equal(bed.counters.replays, 0);
});

test(
  "TunnelService: a slow server that has acknowledged all bytes is waited for: no reset, replay or penalty",
  TIMEOUT,
  async (t) => {
    for (const said of [clientHello("a.example").toString("latin1"), "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"]) {
      const bed = await FrontBed.open(t);
      const slow = await serverFor(t, (socket) => socket.resume());
      bed.dial = () => bed.connected(slow.port, "eth0");
      const client = await TestClient.to(t, bed.port);
      client.write(`CONNECT a.example:443 HTTP/1.1\r\n\r\n${said}`);
      await client.read("200");
      await waitBytes([...slow.clients][0], said.length);
      await bed.clock.advance(300_000);
      [...slow.clients][0]?.write("at last");
      await client.read("at last");
      assert.deepEqual([bed.counters.replays, bed.counters.blackholes, bed.penalties.list()], [0, 0, []]);
      assert.deepEqual(bed.evidence.lines, ["first-byte eth0 a.example:443"]);
    }
  },
);
