/**
 * Which proxy survives which fault: the shipped uplink proxy, Debian's tinyproxy and squid in the same test bed, while the cheap uplink
 * fails or one side closes its half of a tunnel.
 *
 *     node bench/survive.ts [--json] [--write]
 *
 * `--write` puts the table into docs/guides/uplink-proxy.md. A try is one download by curl, or one tunnel; a proxy survives
 * when its client gets all bytes and no error within 20 s. Each try has a bed and a proxy of its own, so that no state remains from an
 * earlier try.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { describeError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { connectInside, requestConnect } from "#lab/inside";
import { makeCertificates } from "#test/certificates";
import { Bed } from "../test/support/uplink-wan-bed.ts";
import { missingPeers, type Side, startOurs, startSquid, startTinyproxy, stop } from "./connect.sides.ts";

/** A client that waits longer than this has stopped waiting, in seconds. */
const PATIENCE_S = 20;
const PORT = 9000;
const PAGE = join(import.meta.dirname, "../docs/guides/uplink-proxy.md");
const MARKS = ["<!-- survival: begin (./run bench survive --write) -->", "<!-- survival: end -->"] as const;
const QUESTION = "the question";
const REPLY = "z".repeat(200_000);
const BY_ADDRESS = "https://203.0.113.80/";
const BY_NAME = "https://registry.example/";

const SIDES = {
  "uplink-proxy": (bed: Bed, dir: string) => startOurs({ bed, dir }, {}),
  tinyproxy: (bed: Bed, dir: string) => startTinyproxy({ bed, dir }),
  squid: (bed: Bed, dir: string) => startSquid({ bed, dir }),
} as const;
type Name = keyof typeof SIDES;
const NAMES = Object.keys(SIDES) as readonly Name[];

interface Place {
  readonly bed: Bed;
  readonly side: Side;
  /** PEM file of the authority that the servers are of. */
  readonly ca: string;
}

/** The outcome of one client. */
interface Outcome {
  readonly survives: boolean;
  readonly seconds: number;
  /** The uplink that carried it, or the client's error. */
  readonly saw: string;
}

interface Try {
  readonly name: string;
  /** The preparation, which is not measured. */
  readonly before?: (at: Place) => unknown;
  /** Resolves with the uplink that carried it; rejects with the client's error. */
  readonly run: (at: Place) => Promise<string>;
}

const download = (url: string) => (at: Place) => curl(at, url);
const breakBy =
  (fault: "silent" | "swallow") =>
  ({ bed }: Place): void =>
    bed.wan0.break(fault);
/** A first download, so that the measured download is the second. */
const andTry = (fault: "silent" | "swallow") => async (at: Place) => {
  at.bed.wan0.break(fault);
  await outcomeOf(() => curl(at, BY_ADDRESS));
};

const TRIES: readonly Try[] = [
  { name: "all is well", run: download(BY_ADDRESS) },
  { name: "dead gateway", before: breakBy("silent"), run: download(BY_ADDRESS) },
  { name: "dead gateway, the next download", before: andTry("silent"), run: download(BY_ADDRESS) },
  { name: "blackhole after the handshake", before: breakBy("swallow"), run: download(BY_ADDRESS) },
  { name: "blackhole after the handshake, the next download", before: andTry("swallow"), run: download(BY_ADDRESS) },
  {
    name: "DNS of the cheap uplink dead",
    before: ({ bed }) => {
      bed.wan0.dns.mute = true;
    },
    run: download(BY_NAME),
  },
  { name: "the client closes its half, the reply comes after", run: clientHalfClose },
  { name: "the server closes its half, the client continues to send", run: serverHalfClose },
];

async function curl({ bed, side, ca }: Place, url: string): Promise<string> {
  const options = ["-sS", "-m", `${PATIENCE_S}`, "--cacert", ca, "--proxy", `http://127.0.0.1:${side.port}`];
  const [file, args] = bed.inside("curl", ...options, url);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"] });
  const ended = once(child, "close");
  const [said, complained] = await Promise.all([text(child.stdout), text(child.stderr)]);
  await ended;
  if (child.exitCode !== 0) throw new Error(complained.trim());
  return said.trim().split(" ")[0] ?? "";
}

async function tunnel({ bed, side }: Place): Promise<Socket> {
  const place = { address: IpAddress.parse("127.0.0.1"), port: side.port };
  const options = { timeoutMs: PATIENCE_S * 1000 };
  return requestConnect(await connectInside({ name: bed.nodeName }, place, options), `203.0.113.80:${PORT}`, options);
}

async function clientHalfClose(at: Place): Promise<string> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    void text(socket).then((heard) => socket.end(`heard ${heard}`), ignoreEnd);
  });
  at.bed.wan0.listen(server, PORT);
  const client = await tunnel(at);
  client.end(QUESTION);
  const reply = await text(client);
  if (reply !== `heard ${QUESTION}`) throw new Error(`${reply.length} bytes came instead of the reply`);
  return "wan0";
}

async function serverHalfClose(at: Place): Promise<string> {
  const { promise: heard, resolve, reject } = Promise.withResolvers<string>();
  heard.catch(ignoreEnd);
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    socket.end(REPLY);
    text(socket).then(resolve, reject);
  });
  at.bed.wan0.listen(server, PORT);
  const client = await tunnel(at);
  const reply = await text(client);
  if (reply !== REPLY) throw new Error(`${reply.length} of ${REPLY.length} bytes came`);
  client.end(QUESTION);
  const got = await heard;
  if (got !== QUESTION) throw new Error(`the server heard ${got.length} of ${QUESTION.length} bytes`);
  return "wan0";
}

/** A broken stream is detected by the reader at its other end. */
const ignoreEnd = (): undefined => undefined;

async function outcomeOf(run: () => Promise<string>): Promise<Outcome> {
  const from = performance.now();
  const since = (): number => Number(((performance.now() - from) / 1000).toFixed(2));
  const late = Promise.withResolvers<string>();
  const timer = setTimeout(() => late.reject(new Error(`nothing within ${PATIENCE_S} s`)), PATIENCE_S * 1000 + 500);
  try {
    const saw = await Promise.race([run(), late.promise]);
    return { survives: true, seconds: since(), saw };
  } catch (error) {
    return { survives: false, seconds: since(), saw: describeError(error) };
  } finally {
    clearTimeout(timer);
  }
}

async function tryOnce(name: Name, one: Try, tls: Awaited<ReturnType<typeof certificates>>): Promise<Outcome> {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-survive-"));
  const ca = join(dir, "ca.crt");
  writeFileSync(ca, tls.ca);
  await using bed = await Bed.create();
  for (const wan of [bed.wan0, bed.wan1]) wan.serveWeb(tls.pairs.server);
  const side = await SIDES[name](bed, dir);
  try {
    const at = { bed, side, ca };
    await one.before?.(at);
    return await outcomeOf(() => one.run(at));
  } finally {
    await stop(side);
    rmSync(dir, { recursive: true, force: true });
  }
}

function certificates() {
  return makeCertificates("isthmus-survive", { server: ["203.0.113.80", "registry.example"] });
}

type Row = { readonly case: string } & Readonly<Record<Name, Outcome>>;

async function compare(say: (line: string) => void): Promise<readonly Row[]> {
  const tls = await certificates();
  const rows: Row[] = [];
  for (const one of TRIES) {
    say(one.name);
    // Most of the time is spent waiting, so all sides run at once.
    const outcomes = await Promise.all(NAMES.map(async (name) => [name, await tryOnce(name, one, tls)] as const));
    rows.push({ case: one.name, ...(Object.fromEntries(outcomes) as Record<Name, Outcome>) });
  }
  return rows;
}

function cell({ survives, seconds, saw }: Outcome): string {
  return survives ? `yes, ${seconds.toFixed(1)} s, ${saw}` : `no, after ${seconds.toFixed(1)} s: ${saw}`;
}

function table(rows: readonly Row[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((one) => one.replaceAll("|", "\\|")).join(" | ")} |`;
  const body = rows.map((row) => line([row.case, ...NAMES.map((name) => cell(row[name]))]));
  return [line(["what happens", ...NAMES]), line(["---", ...NAMES.map(() => "---")]), ...body].join("\n");
}

/** Replaces the text between the marks in the guide. */
function write(rows: readonly Row[]): void {
  const page = readFileSync(PAGE, "utf8");
  const [begin, end] = MARKS.map((mark) => page.indexOf(mark));
  if (begin === undefined || end === undefined || begin < 0 || end < begin)
    throw new Error(`${PAGE} has no ${MARKS.join(" ... ")}: there the table goes`);
  writeFileSync(PAGE, `${page.slice(0, begin)}${MARKS[0]}\n${table(rows)}\n${page.slice(end)}`);
}

const { values } = parseArgs({
  options: { json: { type: "boolean", default: false }, write: { type: "boolean", default: false } },
});
const missing = missingPeers();
if (missing.length > 0) {
  console.error(`install the Debian packages first: ${missing.join(" ")}`);
  process.exitCode = 2;
} else {
  const rows = await compare((line) => console.error(line));
  if (values.write) write(rows);
  const survived = Object.fromEntries(NAMES.map((name) => [name, rows.filter((row) => row[name].survives).length]));
  if (values.json) console.log(JSON.stringify({ name: "survive", tries: rows.length, survived, rows }));
  else
    console.log(`${table(rows)}\n\nof ${rows.length}: ${NAMES.map((name) => `${name} ${survived[name]}`).join(", ")}`);
}
