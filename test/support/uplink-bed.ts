/**
 * The shipped `uplink-proxy` in the node of the uplinks' test bed, and real programs of the machine beside it.
 *
 * Owns: the bed, the proxy's settings and process, all removed when the test ends. Does not know: what is tested.
 *
 * ```ts
 * const { bed, curl } = await openUplinkBed(t, { maxCost: 1 });
 * bed.wan0.break("drop-syn");
 * assert.equal((await curl("https://203.0.113.80/")).stdout, "wan1 198.51.100.10\n");
 * ```
 */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { IpAddress } from "#base/ip";
import { connectInside, request } from "#lab/inside";
import { makeCertificates } from "#test/certificates";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";
import { TestClient } from "../../src/features/uplink-proxy/testing/proxy-fixtures.ts";
import { Bed, type BedOptions } from "./uplink-wan-bed.ts";

export type { TestClient } from "../../src/features/uplink-proxy/testing/proxy-fixtures.ts";
export { SERVER4, SERVER6 } from "./uplink-wan-bed.ts";

/** The proxy's address in the node. */
export const PROXY = { address: IpAddress.parse("127.0.0.1"), port: 5443 } as const;
export const PROXY_URL = "http://127.0.0.1:5443";
/** The web server by its address. */
export const WEB4 = "https://203.0.113.80/";
export const WEB6 = "https://[2001:db8:80::80]/";
/** The web server by its name. */
export const WEB = "https://registry.example/";
const NAMES = ["registry.example", "v4.example", "v6.example", "auth.example", "blob.example"];

/** The fields of /healthz that tests read. */
export interface Health {
  readonly ready: boolean;
  readonly listening: string;
  readonly configError?: string;
  readonly ports: readonly {
    readonly ifname: string;
    readonly cost: number;
    readonly hasError?: boolean;
    readonly usableAddr?: string;
  }[];
  readonly requests: number;
  readonly dialFailures: number;
  readonly activeTunnels: number;
  readonly replays: number;
  readonly blackholes: number;
  readonly staleDnsAnswers: number;
  readonly tunnelIdleClosed: number;
  readonly successByPort: Readonly<Record<string, number>>;
  readonly failureByPort: Readonly<Record<string, number>>;
  readonly fallbackByPort: Readonly<Record<string, number>>;
  readonly penalties: readonly { readonly destination: string; readonly uplink: string }[];
  readonly uplinks: readonly { readonly name: string; readonly table?: number }[];
}

/** The bed with the proxy in its node. */
export class UplinkBed {
  /** A command in the node is killed after this time, in milliseconds. */
  commandMs = 40_000;
  /** Flags of the program besides those of the bed. */
  flags: readonly string[] = [];
  readonly bed: Bed;
  readonly dir: string;
  /** PEM file of the authority that signed the certificates of the WANs' servers. */
  readonly ca: string;
  readonly tls: { readonly cert: string; readonly key: string };
  /** The file of its settings. */
  readonly settings: string;
  readonly program = ISTHMUS;
  #running: Running | undefined;

  constructor(init: {
    readonly bed: Bed;
    readonly dir: string;
    readonly ca: string;
    readonly tls: { readonly cert: string; readonly key: string };
  }) {
    this.bed = init.bed;
    this.dir = init.dir;
    this.ca = init.ca;
    this.tls = init.tls;
    this.settings = join(init.dir, "uplinks.json");
  }

  get pid(): number {
    return this.#proxy.child.pid ?? 0;
  }

  /** The log of the proxy that is running. */
  get log(): readonly string[] {
    return this.#proxy.said().split("\n");
  }

  get #proxy(): Running {
    if (this.#running === undefined) throw new Error("uplink-proxy was not started");
    return this.#running;
  }

  /** Replaces the settings as a whole: both uplinks of the bed, no wait for tunnels at the end, and the given settings. */
  configure(rest: Readonly<Record<string, unknown>>): void {
    const common = { version: 1, maxCost: 1, uplinks: this.bed.uplinkEntries, limits: { drainMs: 100 } };
    this.writeSettings(JSON.stringify({ ...common, ...rest }));
  }

  /** Replaces the file by renaming, like operators' tools. */
  writeSettings(text: string): void {
    writeFileSync(`${this.settings}.new`, text);
    renameSync(`${this.settings}.new`, this.settings);
  }

  /** Starts the program; does not wait. */
  launch(): void {
    const at = (name: string): string => join(this.dir, name);
    const flags = [
      `--config=${this.settings}`,
      `--control-socket=${at("control.sock")}`,
      `--run-dir=${at("run")}`,
      `--secrets-dir=${at("secrets")}`,
      `--off-switch=${at("off")}`,
      `--sentinel=${at("sentinel")}`,
      ...this.flags,
    ];
    const [file, args] = this.bed.inside(ISTHMUS, "uplink-proxy", ...flags);
    this.#running = start([file, ...args], { timeoutMs: 300_000 });
  }

  /** Starts the program and waits until it serves. */
  async start(): Promise<void> {
    this.launch();
    await until("uplink-proxy serves", async () => (await this.tryHealth())?.ready, {
      everyMs: 20,
      deadlineMs: 20_000,
      seen: () => this.#proxy.said(),
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#proxy.child.kill(name);
  }

  /** Ends the program and waits. */
  async stop(name: NodeJS.Signals = "SIGTERM"): Promise<Outcome | undefined> {
    this.#running?.child.kill(name);
    return this.#running?.ended;
  }

  /** Runs a command in the node to its end. */
  run = (command: string, ...words: readonly string[]): Promise<Outcome> => {
    const [file, args] = this.bed.inside(command, ...words);
    return start([file, ...args], { timeoutMs: this.commandMs }).ended;
  };

  /** Downloads through the proxy. */
  curl = (url: string, ...more: readonly string[]): Promise<Outcome> =>
    this.run("curl", "-sSg", "-m", "30", "--cacert", this.ca, "--proxy", PROXY_URL, "--proxytunnel", ...more, url);

  /** Runs a download; returns its output without the last newline, or its error, and its duration. */
  fetch = async (url: string, ...more: readonly string[]): Promise<readonly [answer: string, ms: number]> => {
    const from = performance.now();
    const { code, stdout, stderr } = await this.curl(url, ...more);
    return [code === 0 ? stdout.trimEnd() : `curl ${code}: ${stderr}`, performance.now() - from];
  };

  /** A client in the node that is connected to the proxy. */
  client = async (t: TestContext): Promise<TestClient> => {
    const socket = await connectInside({ name: this.bed.nodeName }, PROXY, { timeoutMs: 5000 });
    t.after(() => socket.destroy());
    return new TestClient(socket);
  };

  /** Rejects while the proxy does not answer. */
  health = async (): Promise<Health> => {
    const socket = await connectInside({ name: this.bed.nodeName }, PROXY, { timeoutMs: 2000 });
    const { body } = await request(socket, { path: "/healthz", host: "127.0.0.1" }, { timeoutMs: 2000 });
    return JSON.parse(body) as Health;
  };

  async tryHealth(): Promise<Health | undefined> {
    try {
      return await this.health();
    } catch (error) {
      // A proxy that does not answer is an expected result here.
      if (error instanceof Error && error.name === "InsideError") return undefined;
      throw error;
    }
  }

  /** Rules, our routes and our table of the firewall, as the tools of the machine print them. */
  kernelState = async (): Promise<string> => {
    const parts = [
      ["ip", "rule"],
      ["ip", "-6", "rule"],
      ["ip", "route", "show", "table", "all", "proto", "157"],
      ["ip", "-6", "route", "show", "table", "all", "proto", "157"],
      ["nft", "list", "ruleset"],
    ] as const;
    const outcomes = await Promise.all(parts.map(([command, ...words]) => this.run(command, ...words)));
    return outcomes.map(({ stdout, stderr }) => stdout + stderr).join("--\n");
  };
}

/** A bed with web servers in both WANs, and the proxy in its node with these settings, serving. */
export async function openUplinkBed(
  t: TestContext,
  rest: Readonly<Record<string, unknown>> = {},
  options: BedOptions & { readonly start?: boolean; readonly flags?: readonly string[] } = {},
): Promise<UplinkBed> {
  const hosts = [...NAMES, "203.0.113.80", "2001:db8:80::80"];
  const { ca, pairs } = makeCertificates("isthmus-test-wan", { server: hosts });
  const bed = await Bed.create(options);
  const dir = mkdtempSync(join(tmpdir(), "isthmus-uplink-"));
  writeFileSync(join(dir, "ca.crt"), ca);
  const one = new UplinkBed({ bed, dir, ca: join(dir, "ca.crt"), tls: pairs.server });
  t.after(async () => {
    const timer = setTimeout(() => one.signal("SIGKILL"), 5000);
    await one.stop();
    clearTimeout(timer);
    await bed[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true, force: true });
  });
  for (const wan of [bed.wan0, bed.wan1]) wan.serveWeb(pairs.server);
  one.flags = options.flags ?? [];
  one.configure(rest);
  if (options.start !== false) await one.start();
  return one;
}

/** Resolves with the text when a client has read the stream to its end. */
export async function readToEnd(client: TestClient): Promise<string> {
  await client.until(({ isEnded, isClosed }) => isEnded || isClosed);
  return client.text;
}

/** Sends CONNECT and waits for the answer's head; gives its first line. */
export async function connectThroughProxy(client: TestClient, target: string): Promise<string> {
  client.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  const text = await client.read("\r\n\r\n");
  return text.slice(0, text.indexOf("\r\n"));
}
