// alone: it measures memory and times, and keeps the processor busy.
/** The listeners of the suite under clients that have proved nothing (docs/security.md). */
import assert from "node:assert/strict";
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { DATAGRAMS, HELPERS, LISTENERS, prepare, type StrangersListener } from "#test/listeners";
import { ListenersHost } from "#test/listeners-process";
import { Strangers, type StrangersOptions } from "#test/strangers";

const root = join(import.meta.dirname, "../..");
const TIMEOUT = { timeout: 30_000 };
/** Strangers of the long form, for each of the short one. */
const IS_LONG = process.env["ISTHMUS_SOAK"] === "full";
const FACTOR = IS_LONG ? 5 : 1;
/** The strangers of all kinds, one after the other, may cost this much, in MiB. */
const MAX_MORE_MIB = 32;
/** In which a good client is served, besides twenty times what it takes without strangers, in milliseconds. */
const SERVED_MS = 1000;
/** One stranger sends so much in whole messages, in bytes. */
const MANY_BYTES = 160 * 1024;

let shared: Bed;
before(async () => {
  shared = await startBed();
}, TIMEOUT);
after(() => shared.close());

/** A process with all listeners, which have served good clients, and its folder. */
interface Bed {
  readonly host: ListenersHost;
  readonly folder: string;
  readonly close: () => Promise<void>;
}

async function startBed(): Promise<Bed> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-strangers-"));
  prepare(folder);
  const host = await ListenersHost.start(folder, { signal: AbortSignal.timeout(TIMEOUT.timeout) });
  for (const { name, good } of LISTENERS)
    for (let warm = 0; warm < 3; warm += 1) await good(host.places[name] ?? {}, folder);
  await host.collectGarbage();
  host.baseMiB = host.memory("VmRSS");
  const close = async (): Promise<void> => {
    await host[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  };
  return { host, folder, close };
}

/** Returns the bed: in the short form one for all listeners, whose memory adds up. In the long form each listener has its own, as no program has all of them. */
async function bedFor(t: TestContext): Promise<Bed> {
  if (!IS_LONG) return shared;
  const bed = await startBed();
  t.after(bed.close);
  return bed;
}

async function timed(work: () => Promise<void>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

function kindsOf({ half, request, alpn, strangers }: StrangersListener): Readonly<Record<string, StrangersOptions>> {
  const one = Buffer.from(request);
  const many = Buffer.alloc(Math.floor(MANY_BYTES / one.length) * one.length, one);
  const count = strangers * FACTOR;
  const few = Math.ceil(count / 4);
  return {
    idle: { count, bytes: Buffer.alloc(0), isReading: false, alpn: undefined },
    "half sent": { count, bytes: Buffer.from(half), isReading: false, alpn: undefined },
    pipelined: { count: few, bytes: many, isReading: true, alpn },
    unread: { count: few, bytes: many, isReading: false, alpn },
  };
}

test("strangers: every file that makes a listening socket is in the table", () => {
  // What every listener begins with; `listen` alone has many meanings.
  const begins = /\b(\w*[cC]reate\w*Server|listenTcp|listenUnix|createSocket)\(|\bnew (WebSocketServer|UdpPort)\(/;
  const shipped = globSync("src/**/*.ts", { cwd: root }).filter(
    (file) => !/\.(test|contract)\.ts$|\/testing\/|^src\/lab\//.test(file),
  );
  const listening = shipped.filter((file) => {
    const text = readFileSync(join(root, file), "utf8");
    return begins.test(text) && begins.test(text.replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, ""));
  });
  const known = [...LISTENERS.flatMap(({ files }) => files), ...HELPERS, ...DATAGRAMS];
  assert.deepEqual(
    listening.filter((file) => !known.includes(file)),
    [],
    "add it to test/support/listeners.ts",
  );
  assert.deepEqual(
    known.filter((file) => !listening.includes(file)),
    [],
    "it listens no more",
  );
});

test("strangers: docs/security.md has the table", () => {
  const page = readFileSync(join(root, "docs/security.md"), "utf8");
  const rows = LISTENERS.filter(({ isVariant }) => isVariant !== true).map(
    ({ name, reach, places, ends, work }) => `| ${name} | ${reach} | ${places} | ${ends} | ${work} |\n`,
  );
  const head =
    "| listener | who reaches it | places of those who have proved nothing | what ends them | what one may have done and held |\n| --- | --- | --- | --- | --- |\n";
  const wanted = `${head}${rows.join("")}`;
  assert.ok(page.includes(wanted), `the page does not have\n${wanted}`);
});

for (const listener of LISTENERS) {
  const title = `strangers: ${listener.name.replaceAll("`", "")}: idle, half sent, pipelined and unread bytes cost 32 MiB at most, and a good client is served`;
  test(title, TIMEOUT, async (t) => {
    const { host, folder } = await bedFor(t);
    const place = host.places[listener.name] ?? {};
    const mode = place.path === undefined ? undefined : statSync(place.path).mode & 0o777;
    assert.equal(mode, listener.mode, "who may connect");
    const good = (): Promise<void> => listener.good(place, folder);
    const quiet = await timed(good);
    await host.collectGarbage();
    for (const [kind, options] of Object.entries(kindsOf(listener))) {
      host.resetPeak();
      using strangers = await Strangers.press(place, options);
      const times: number[] = [];
      // Until nothing moves any more; some are served without end, a request at a time.
      for (let before = -1; times.length < 3 || (strangers.moved !== before && times.length < 12); ) {
        before = strangers.moved;
        times.push(await timed(good));
      }
      const moreMiB = host.memory("VmHWM") - host.baseMiB;
      const slowest = Math.max(...times);
      t.diagnostic(
        `${kind}: ${strangers.open} of ${options.count} open, ${moreMiB.toFixed(1)} MiB, ${slowest.toFixed(0)} ms of ${times.length}, ${quiet.toFixed(0)} ms without`,
      );
      assert.ok(moreMiB <= MAX_MORE_MIB, `${kind}: ${moreMiB.toFixed(1)} MiB more`);
      assert.ok(slowest <= SERVED_MS + 20 * quiet, `${kind}: ${slowest.toFixed(0)} ms`);
    }
  });
}
