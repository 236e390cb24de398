/** A DNS server on loopback whose answers a test decides. */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { IpAddress } from "#base/ip";

/** The addresses of the requested type, or another result; a promise delays the answer. */
export type DnsAnswer = readonly string[] | "silent" | "nxdomain" | "servfail";

/** Type A of RFC 1035. */
export const TYPE_A = 1;

/** `server` is `address:port`; `asked` has every question as `NAME A` or `NAME AAAA`. */
export async function dnsServer(
  t: TestContext,
  answer: (name: string, type: number) => DnsAnswer | Promise<DnsAnswer>,
): Promise<{ readonly server: string; readonly asked: string[] }> {
  const asked: string[] = [];
  const socket = createSocket("udp4");
  let isOpen = true;
  socket.on("message", async (question, from) => {
    const labels: string[] = [];
    let at = 12;
    for (let length = question[at] ?? 0; length > 0; length = question[at] ?? 0) {
      labels.push(question.toString("latin1", at + 1, at + 1 + length).toLowerCase());
      at += length + 1;
    }
    const type = question.readUInt16BE(at + 1);
    asked.push(`${labels.join(".")} ${type === TYPE_A ? "A" : "AAAA"}`);
    const given = await answer(labels.join("."), type);
    if (given === "silent" || !isOpen) return;
    const records = typeof given === "string" ? [] : given.map((text) => record(type, text));
    const header = Buffer.from(question.subarray(0, 12));
    header.writeUInt16BE(given === "nxdomain" ? 0x8183 : given === "servfail" ? 0x8182 : 0x8180, 2);
    header.writeUInt16BE(records.length, 6);
    header.fill(0, 8);
    socket.send(Buffer.concat([header, question.subarray(12, at + 5), ...records]), from.port, from.address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  t.after(() => {
    isOpen = false;
    socket.close();
  });
  return { server: `127.0.0.1:${socket.address().port}`, asked };
}

function record(type: number, text: string): Buffer {
  const bytes = IpAddress.parse(text).toBytes();
  return Buffer.concat([Buffer.of(0xc0, 12, 0, type, 0, 1, 0, 0, 0, 77, 0, bytes.length), bytes]);
}
