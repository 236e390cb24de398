/**
 * SCTP through Services. Kernels of test machines have no SCTP sockets, but connection tracking knows SCTP: its packets are made and
 * read here, by raw sockets (RFC 9260).
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { IpAddress } from "#base/ip";
import { C, close, encodeSockaddr, recv, send, socket } from "#kernel/ffi";
import { inNetNs, type NetNs } from "#kernel/netns";
import { until } from "#test/lab";
import { PROTOCOL_NUMBERS } from "../model/index.ts";
import { Bed } from "../testing/bed.ts";
import {
  addressesOf,
  endpoint,
  NODE_PORT,
  packetOf,
  SERVICE_PORT,
  servicePort,
  TARGET_PORT,
  traceContextFor,
} from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";
import { traceAll } from "../trace/index.ts";

const INIT = 1;
const INIT_ACK = 2;
const TAG = 0x1234;
const CLIENT_PORT = 4000;
/** The interval at which a packet is sent again until it is seen, in milliseconds: the first packet may wait for a neighbour. */
const AGAIN_MS = 100;

let bed: Bed;
let proxy: NodeProxy;
before(async () => {
  bed = await Bed.open(`isp-sctp-${process.pid}`);
  proxy = await NodeProxy.open(bed);
});
after(async () => {
  await proxy[Symbol.asyncDispose]();
  await bed[Symbol.asyncDispose]();
});

/** An SCTP packet with one chunk. */
interface Packet {
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly tag: number;
  readonly chunk: number;
}

/** Its bytes (RFC 9260 sections 3.1, 3.3.2): header, checksum, and a chunk as long as INIT's. */
function encode({ sourcePort, destinationPort, tag, chunk }: Packet): Buffer {
  const bytes = Buffer.alloc(32);
  bytes.writeUInt16BE(sourcePort, 0);
  bytes.writeUInt16BE(destinationPort, 2);
  bytes.writeUInt32BE(tag, 4);
  bytes.writeUInt8(chunk, 12);
  bytes.writeUInt16BE(20, 14);
  bytes.writeUInt32BE(TAG, 16);
  bytes.writeUInt32BE(65_535, 20);
  bytes.writeUInt16BE(1, 24);
  bytes.writeUInt16BE(1, 26);
  bytes.writeUInt32LE(crc32c(bytes), 8);
  return bytes;
}

/** CRC32c (RFC 9260 appendix A), bit by bit. */
function crc32c(bytes: Buffer): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ ((crc & 1) === 1 ? 0x82f6_3b78 : 0);
  }
  return (crc ^ 0xffff_ffff) >>> 0;
}

/** Sees all SCTP packets of a namespace, and sends them. */
class RawSctp implements Disposable {
  readonly #family: 4 | 6;
  readonly #fd: number;

  constructor(netns: NetNs, family: 4 | 6) {
    this.#family = family;
    const domain = family === 4 ? C.AF_INET : C.AF_INET6;
    this.#fd = inNetNs(netns, () => socket(domain, C.SOCK_RAW | C.SOCK_NONBLOCK, PROTOCOL_NUMBERS.SCTP));
  }

  send(to: IpAddress, packet: Packet): void {
    send(this.#fd, encode(packet), { address: encodeSockaddr({ address: to, port: 0 }) });
  }

  /** The next packet that has come, its source address with it where the header tells; its checksum must hold. */
  receive(): (Packet & { readonly from: IpAddress | undefined }) | undefined {
    const buffer = Buffer.alloc(2048);
    const length = recv(this.#fd, buffer);
    if (length === undefined) return undefined;
    // IPv4's raw sockets have the IP header, IPv6's have not.
    const header = this.#family === 4 ? ((buffer[0] ?? 0) & 15) * 4 : 0;
    const from = header === 0 ? undefined : IpAddress.fromBytes(buffer.subarray(12, 16));
    const bytes = Buffer.from(buffer.subarray(header, length));
    const checksum = bytes.readUInt32LE(8);
    bytes.writeUInt32LE(0, 8);
    assert.equal(crc32c(bytes), checksum, "the checksum was not made anew");
    return {
      sourcePort: bytes.readUInt16BE(0),
      destinationPort: bytes.readUInt16BE(2),
      tag: bytes.readUInt32BE(4),
      chunk: bytes.readUInt8(12),
      from,
    };
  }

  [Symbol.dispose](): void {
    close(this.#fd);
  }
}

/** Sends until the other side has a packet of that kind; what it is. */
async function deliver(
  chunk: number,
  sendIt: () => void,
  receiver: RawSctp,
): Promise<NonNullable<ReturnType<RawSctp["receive"]>>> {
  let seen: ReturnType<RawSctp["receive"]>;
  await until(
    `a packet with chunk ${chunk} arrives`,
    () => {
      seen = receiver.receive();
      if (seen === undefined) sendIt();
      return seen?.chunk === chunk;
    },
    { deadlineMs: 5000, everyMs: AGAIN_MS },
  );
  return seen ?? assert.fail();
}

const ports = [{ name: "assoc", port: SERVICE_PORT, protocol: "SCTP" as const, nodePort: NODE_PORT }];

for (const family of [4, 6] as const) {
  const { clusterIP, node, pod, remoteEndpoint } = addressesOf(family);

  test(`SCTP: an association's first packets are translated there and back, by cluster IP and NodePort, IPv${family}`, async () => {
    const slice = sliceObject(family, [endpointObject(remoteEndpoint, "elsewhere")], {
      ports: [{ name: "assoc", port: TARGET_PORT, protocol: "SCTP" }],
    });
    await proxy.setBoth(serviceObject(family, { type: "NodePort", ports }), slice);
    using server = new RawSctp(bed.netns("remote"), family);
    for (const [sender, address, port] of [
      ["pod", clusterIP, SERVICE_PORT],
      ["external", node, NODE_PORT],
    ] as const) {
      using client = new RawSctp(bed.netns(sender), family);
      const init = { sourcePort: CLIENT_PORT, destinationPort: port, tag: 0, chunk: INIT };
      const asked = await deliver(INIT, () => client.send(address, init), server);
      assert.equal(asked.destinationPort, TARGET_PORT);
      const isMasked = sender === "external";
      if (!isMasked) assert.equal(asked.sourcePort, CLIENT_PORT);
      const back = isMasked ? bed.nodeAddresses(family)[1] : pod;
      assert.ok(back !== undefined);
      if (asked.from !== undefined) assert.equal(String(asked.from), String(back));
      const ack = { sourcePort: TARGET_PORT, destinationPort: asked.sourcePort, tag: TAG, chunk: INIT_ACK };
      const answered = await deliver(INIT_ACK, () => server.send(back, ack), client);
      assert.deepEqual([answered.sourcePort, answered.destinationPort, answered.tag], [port, CLIENT_PORT, TAG]);
      if (answered.from !== undefined) assert.equal(String(answered.from), String(address));
      while (server.receive() !== undefined); // what was sent again
    }
  });

  test(`SCTP: the tracer treats it like TCP, each protocol separately, IPv${family}`, () => {
    const context = traceContextFor(family, [
      { port: servicePort(family, { protocol: "SCTP" }), endpoints: [endpoint(family, "remote")] },
    ]);
    const ends = (address: IpAddress, port: number, protocol: "SCTP" | "TCP"): readonly string[] =>
      traceAll(packetOf(family, "pod", address, port, protocol), context).map(({ outcome }) =>
        outcome.kind === "delivered" && outcome.isTranslated ? String(outcome.destination) : outcome.kind,
      );
    for (const [address, port] of [
      [clusterIP, SERVICE_PORT],
      [node, NODE_PORT],
    ] as const) {
      assert.deepEqual(ends(address, port, "SCTP"), [String(remoteEndpoint)]);
    }
    assert.deepEqual(ends(clusterIP, SERVICE_PORT, "TCP"), ["rejected"]);
    const none = traceContextFor(family, [{ port: servicePort(family, { protocol: "SCTP" }), endpoints: [] }]);
    const [refused] = traceAll(packetOf(family, "pod", clusterIP, SERVICE_PORT, "SCTP"), none);
    assert.equal(refused?.outcome.kind, "rejected");
  });
}
