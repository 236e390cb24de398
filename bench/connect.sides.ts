/**
 * The proxies that are compared, each started in the node of the uplinks' test bed as an operator would run it: the shipped
 * `uplink-proxy`, and Debian's tinyproxy and squid, which follow the node's main routing table and its resolv.conf. No proxy logs each
 * tunnel, because tinyproxy would wait for the disk each time.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { connectInside, InsideError } from "#lab/inside";
import type { Bed } from "../test/support/uplink-wan-bed.ts";

/** A proxy that runs. */
export interface Side {
  readonly name: string;
  /** The port of its listener on the node's loopback. */
  readonly port: number;
  readonly process: ChildProcess;
}

interface Place {
  readonly bed: Bed;
  /** The folder of its files. */
  readonly dir: string;
}

const PROGRAM = join(import.meta.dirname, "../dist/isthmus");
const PORTS = { ours: 5443, tinyproxy: 8888, squid: 3128 } as const;
const LOOPBACK = IpAddress.parse("127.0.0.1");
const START_MS = 20_000;

/** The peers' programs that this machine lacks: Debian packages of the same names. */
export function missingPeers(): readonly string[] {
  return ["tinyproxy", "squid"].filter(
    (name) => !["/usr/bin", "/usr/sbin"].some((folder) => existsSync(join(folder, name))),
  );
}

/** Rejects when it does not serve in time. */
export async function startOurs(
  place: Place,
  settings: Readonly<Record<string, unknown>> & { readonly port?: number },
): Promise<Side> {
  const { port = PORTS.ours, ...rest } = settings;
  const name = `ours-${port}`;
  const dir = join(place.dir, name);
  mkdirSync(dir);
  const file = join(dir, "uplinks.json");
  const listeners = [{ name: "host", role: "host", address: LOOPBACK.toString(), port }];
  const common = { version: 1, maxCost: 1, uplinks: place.bed.uplinkEntries, listeners, limits: { drainMs: 0 } };
  writeFileSync(file, JSON.stringify({ ...common, ...rest }));
  const at = (path: string): string => join(dir, path);
  const flags = [
    `--config=${file}`,
    "--control-socket=",
    `--run-dir=${dir}`,
    `--secrets-dir=${at("secrets")}`,
    `--off-switch=${at("off")}`,
    `--sentinel=${at("sentinel")}`,
    "--zap-log-level=error",
  ];
  return started(place, { name: "uplink-proxy", port }, [PROGRAM, "uplink-proxy", ...flags]);
}

/** Rejects when it does not serve in time. */
export async function startTinyproxy(place: Place): Promise<Side> {
  const file = join(place.dir, "tinyproxy.conf");
  const port = PORTS.tinyproxy;
  const lines = [
    `Port ${port}`,
    `Listen ${LOOPBACK}`,
    // The default of a hundred would refuse the benchmark's clients.
    "MaxClients 2000",
    "Timeout 600",
    "LogLevel Critical",
  ];
  writeFileSync(file, `${lines.join("\n")}\n`);
  return started(place, { name: "tinyproxy", port }, ["tinyproxy", "-d", "-c", file]);
}

/** Rejects when it does not serve in time. */
export async function startSquid(place: Place): Promise<Side> {
  const dir = join(place.dir, "squid");
  mkdirSync(dir);
  // The program drops root's rights.
  chmodSync(place.dir, 0o755);
  chmodSync(dir, 0o777);
  const file = join(dir, "squid.conf");
  const port = PORTS.squid;
  const lines = [
    `http_port ${LOOPBACK}:${port}`,
    "http_access allow all",
    "cache deny all",
    "access_log none",
    `cache_log ${join(dir, "cache.log")}`,
    "pid_filename none",
    "netdb_filename none",
    `coredump_dir ${dir}`,
    "shutdown_lifetime 0 seconds",
    "max_filedescriptors 8192",
    "pinger_enable off",
  ];
  writeFileSync(file, `${lines.join("\n")}\n`);
  return started(place, { name: "squid", port }, ["squid", "-N", "-f", file]);
}

/** Ends it and waits. */
export async function stop({ process: child }: Side): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("close", resolve));
  child.kill("SIGKILL");
  await ended;
}

async function started(
  { bed, dir }: Place,
  { name, port }: Pick<Side, "name" | "port">,
  argv: readonly string[],
): Promise<Side> {
  const resolv = join(dir, "resolv.conf");
  writeFileSync(resolv, bed.uplinks.map(({ wan }) => `nameserver ${wan.addresses.dns4}\n`).join(""));
  // A resolv.conf of the node's own, which only this process and its children see.
  const script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"';
  const [file, args] = bed.inside("unshare", "--mount", "sh", "-c", script, "sh", resolv, ...argv);
  const log = join(dir, `${name}-${port}.err`);
  const out = openSync(log, "w");
  const child = spawn(file, args, { stdio: ["ignore", out, out] });
  closeSync(out);
  const serves = await poll(() => answers(bed, port), {
    until: (yes) => yes || child.exitCode !== null,
    everyMs: 20,
    deadlineMs: START_MS,
    clock: systemClock,
  });
  if (!serves) throw new Error(`${name} does not serve on port ${port}: ${readFileSync(log, "utf8").slice(-2000)}`);
  return { name, port, process: child };
}

async function answers(bed: Bed, port: number): Promise<boolean> {
  try {
    (await connectInside({ name: bed.nodeName }, { address: LOOPBACK, port }, { timeoutMs: 1000 })).destroy();
    return true;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return false;
  }
}
