/** A DNS server on loopback whose answers a test decides. */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { IpAddress } from "#base/ip";
import { encodeAnswer, readQuestion } from "#lab/internet";

/** Response codes of RFC 1035 section 4.1.1. */
const CODES = { formerr: 1, servfail: 2, nxdomain: 3, notimp: 4, refused: 5 } as const;

/** The addresses of the requested type, or another result; a promise delays the answer. */
export type DnsAnswer = readonly string[] | "silent" | keyof typeof CODES;

/** Type A of RFC 1035. */
export const TYPE_A = 1;

/**
 * `server` is `address:port`; `asked` has every question as `NAME A` or `NAME AAAA`, and `sources` the addresses that asked. An answer has a TTL of 77 s,
 * and is sent after `delayMs`.
 */
export async function dnsServer(
  t: TestContext,
  answer: (name: string, type: number) => DnsAnswer | Promise<DnsAnswer>,
  { delayMs = 0 }: { readonly delayMs?: number } = {},
): Promise<{ readonly server: string; readonly asked: string[]; readonly sources: string[] }> {
  const asked: string[] = [];
  const sources: string[] = [];
  const socket = createSocket("udp4");
  const end = new AbortController();
  socket.on("message", async (query, from) => {
    const question = readQuestion(query);
    asked.push(`${question.name} ${question.type === TYPE_A ? "A" : "AAAA"}`);
    sources.push(from.address);
    const given = await answer(question.name, question.type);
    if (delayMs > 0) await delay(delayMs, undefined, { ref: false });
    if (given === "silent" || end.signal.aborted) return;
    const found =
      typeof given === "string"
        ? { addresses: [], code: CODES[given] }
        : { addresses: given.map((text) => IpAddress.parse(text)) };
    socket.send(encodeAnswer(query, question, { ...found, ttlSeconds: 77 }), from.port, from.address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  t.after(() => {
    end.abort();
    socket.close();
  });
  return { server: `127.0.0.1:${socket.address().port}`, asked, sources };
}
