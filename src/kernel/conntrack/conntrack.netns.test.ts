import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { close, encodeSockaddr, send } from "#kernel/ffi";
import { openKernel } from "#kernel/net";
import { AF, MessageWriter, NETLINK, NetlinkConnection } from "#kernel/netlink";
import { createAnonymousNetNs } from "#kernel/netns";
import { NftTransaction, openNft } from "#kernel/nft";
import { bindUdp } from "#kernel/socket";
import { CT, encodeListing } from "./codec.ts";
import { type ConntrackPort, FakeConntrack, openConntrack } from "./index.ts";

const TCP = 6;
const UDP = 17;
/** NLM_F_CREATE and NLM_F_EXCL. */
const CREATE = 0x600;
const LOOPBACK = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;

/** Four connections: UDP to ports 1000 and 1001 in each family, the first with mark 5. */
async function checkDeletion(port: ConntrackPort): Promise<void> {
  for (const family of [4, 6] as const) {
    assert.equal(port.list({ family, protocol: UDP }).length, 2);
    assert.deepEqual(await port.listInSlices({ family, protocol: UDP }), port.list({ family, protocol: UDP }));
    const [marked, ...rest] = port.list({ family, mark: { value: 1, mask: 1 } });
    assert.deepEqual(rest, []);
    assert.equal(marked?.original.dstPort, 1000);
    assert.equal(marked?.reply.srcPort, 1000);
    assert.equal(marked?.mark, 5);
    assert.equal(String(marked?.original.dst), String(LOOPBACK[family]));
    assert.equal(await port.delete({ family, protocol: 6 }), 0);
    assert.equal(await port.delete({ family, original: { dst: LOOPBACK[family], dstPort: 1001, srcPort: 1 } }), 0);
    let asked = 0;
    const isFirstTime = (): boolean => {
      asked += 1;
      return asked <= 2;
    };
    assert.equal(
      await port.delete({ family, protocol: UDP }, isFirstTime),
      0,
      "no longer when it comes to the deletion",
    );
    assert.equal(asked, 4);
    assert.equal(await port.delete({ family, protocol: UDP, original: { dst: LOOPBACK[family], dstPort: 1001 } }), 1);
    assert.deepEqual(
      port.list({ family }).map(({ original }) => original.dstPort),
      [1000],
    );
    assert.equal(await port.clearMarks({ family, mark: { value: 6 } }), 0);
    assert.equal(await port.clearMarks({ family, mark: { value: 5 } }), 1);
    assert.equal(await port.clearMarks({ family }), 0);
    assert.deepEqual(
      port.list({ family }).map(({ mark }) => mark),
      [0],
    );
    const all = Cidr.parse(family === 4 ? "127.0.0.0/8" : "::/0");
    assert.equal(await port.delete({ family, reply: { src: all } }), 1);
    assert.deepEqual(port.list({ family }), []);
  }
}

test("openConntrack: lists, forgets and clears the marks of exactly what the filter says", async () => {
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  stack.links.set(1, { up: true });
  using nft = openNft(ns);
  const table = { family: "inet", name: "track" } as const;
  const chain = { type: "filter", hook: "output", priority: 0 } as const;
  nft.run(
    new NftTransaction(table).addTable().chain("out", chain).rule("out", "ct state new udp dport 1000 ct mark set 5"),
  );
  for (const family of [4, 6] as const) {
    for (const port of [1000, 1001]) {
      const server = bindUdp(LOOPBACK[family], port, { netns: ns });
      const client = bindUdp(LOOPBACK[family], 0, { netns: ns });
      send(client, Buffer.from("x"), { address: encodeSockaddr({ address: LOOPBACK[family], port }) });
      close(client);
      close(server);
    }
  }
  using port = openConntrack(ns);
  await checkDeletion(port);
});

test("FakeConntrack: lists, forgets and clears the marks of exactly what the filter says", async () => {
  using port = new FakeConntrack();
  for (const family of [4, 6] as const) {
    const address = LOOPBACK[family];
    for (const [dstPort, mark] of [
      [1000, 5],
      [1001, 0],
    ] as const) {
      port.entries.push({
        family,
        protocol: UDP,
        original: { src: address, dst: address, srcPort: 4000, dstPort },
        reply: { src: address, dst: address, srcPort: dstPort, dstPort: 4000 },
        mark,
      });
    }
  }
  await checkDeletion(port);
});

/** Makes a connection to port 53 without a packet, as conntrack(8) -I does. */
function track(connection: NetlinkConnection, family: 4 | 6, protocol: number, port: number, zone?: number): void {
  const at = LOOPBACK[family];
  const [src, dst] = family === 4 ? [1, 2] : [3, 4];
  const tuple = (body: MessageWriter, type: number, ports: readonly [number, number]): unknown =>
    body.nest(type, (inner) => {
      inner.nest(1, (ip) => ip.address(src, at).address(dst, at));
      inner.nest(2, (proto) => proto.u8(1, protocol).be16(2, ports[0]).be16(3, ports[1]));
    });
  const body = new MessageWriter().raw(Uint8Array.of(family === 4 ? AF.INET : AF.INET6, 0, 0, 0));
  tuple(body, 1, [port, 53]);
  tuple(body, 2, [53, port]);
  body.be32(7, 600);
  if (zone !== undefined) body.be16(18, zone);
  // CTA_PROTOINFO, with the state ESTABLISHED.
  if (protocol === TCP) body.nest(4, (info) => info.nest(1, (tcp) => tcp.u8(1, 3)));
  connection.change({ type: CT.NEW, flags: CREATE, body: body.bytes, what: () => "add a connection" });
}

test("openConntrack: the kernel sends the flows of the wanted protocol alone, of every zone, however many others there are", async () => {
  using ns = createAnonymousNetNs();
  using connection = NetlinkConnection.open(ns, NETLINK.NETFILTER);
  using port = openConntrack(ns);
  for (const family of [4, 6] as const) {
    for (let from = 1; from <= 2000; from += 1) track(connection, family, TCP, from);
    track(connection, family, UDP, 1);
    track(connection, family, UDP, 2, 7);
    let sent = 0;
    const request = { type: CT.GET, body: encodeListing({ family, protocol: UDP }), what: () => "list" };
    connection.dump(request, () => {
      sent += 1;
      return undefined;
    });
    assert.equal(sent, 2);
    assert.equal(port.list({ family, protocol: TCP }).length, 2000);
    assert.equal(await port.delete({ family, protocol: UDP }), 2);
    assert.equal(port.list({ family }).length, 2000);
  }
});

test("openConntrack: the event loop turns while the kernel looks through a table of which it sends nothing", async () => {
  using ns = createAnonymousNetNs();
  using connection = NetlinkConnection.open(ns, NETLINK.NETFILTER);
  using port = openConntrack(ns);
  for (let from = 1; from <= 20_000; from += 1) track(connection, 4, TCP, from);
  let isDone = false;
  let turns = 0;
  const turning = (async () => {
    for (; !isDone; turns += 1) await new Promise((resolve) => setImmediate(resolve));
  })();
  assert.equal(await port.delete({ family: 4, protocol: UDP }), 0);
  isDone = true;
  await turning;
  // In one piece it is two or three.
  assert.ok(turns > 10, `${turns} turns`);
});
