/** Two hops of bench/tunnel.ts and bench/tunnel-profile.ts: how a pair of programs is started and observed. */
import { type ChildProcess, spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { makeCertificates } from "#test/certificates";
import { freePort } from "#test/ports";
import type { Handshake } from "./tunnel.load.ts";
import type { PeerOptions } from "./tunnel.peers.ts";

export interface Hops {
  readonly uds: string;
  readonly handshake: Handshake;
  readonly processes: readonly ChildProcess[];
}

/** Writes a CA and a certificate of both hops into a folder. */
export async function writeIdentity(folder: string): Promise<PeerOptions["tls"]> {
  const { ca, pairs } = makeCertificates("bench", { both: ["localhost", "127.0.0.1"] });
  const tls = { ca: join(folder, "ca.crt"), cert: join(folder, "tls.crt"), key: join(folder, "tls.key") };
  await Promise.all([
    writeFile(tls.ca, ca),
    writeFile(tls.cert, pairs.both.cert),
    writeFile(tls.key, pairs.both.key, { mode: 0o600 }),
  ]);
  return tls;
}

/** The way in which clients speak with the server, as the flag `--mode` of `proxy-server` says it. */
export type Mode = "grpc" | "http-connect";

/** Our programs, or those of Konnectivity, which have the same flags. `command`: the words that start a program. */
export async function startPair(
  command: (name: string) => readonly [string, ...string[]],
  options: PeerOptions & { readonly mode?: Mode },
): Promise<Hops> {
  const { uds, port, tls, mode = "http-connect" } = options;
  const start = (name: string, flags: readonly string[]): ChildProcess => {
    const [file, ...words] = command(name);
    return spawn(file, [...words, ...flags], { stdio: ["ignore", "ignore", "ignore"] });
  };
  const [serverHealth, agentHealth] = [await freePort(), await freePort()];
  const server = start("proxy-server", [
    `--mode=${mode}`,
    `--uds-name=${uds}`,
    "--server-port=0",
    "--agent-bind-address=127.0.0.1",
    `--agent-port=${port}`,
    `--cluster-cert=${tls.cert}`,
    `--cluster-key=${tls.key}`,
    `--cluster-ca-cert=${tls.ca}`,
    "--health-bind-address=127.0.0.1",
    `--health-port=${serverHealth}`,
    `--admin-port=${await freePort()}`,
  ]);
  const agent = start("proxy-agent", [
    "--proxy-server-host=127.0.0.1",
    `--proxy-server-port=${port}`,
    `--ca-cert=${tls.ca}`,
    `--agent-cert=${tls.cert}`,
    `--agent-key=${tls.key}`,
    "--health-server-host=127.0.0.1",
    `--health-server-port=${agentHealth}`,
    `--admin-server-port=${await freePort()}`,
  ]);
  await untilReady(serverHealth, server);
  return { uds, handshake: "connect", processes: [server, agent] };
}

async function untilReady(port: number, child: ChildProcess): Promise<void> {
  for (const deadline = performance.now() + 15_000; performance.now() < deadline; ) {
    if (child.exitCode !== null) break;
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (answer) => answer.ok,
      () => false,
    );
    if (ready) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${child.spawnfile}: the server was not ready within 15 s`);
}

/** Time that a process has had a processor, in seconds. */
export interface ProcessorTime {
  readonly user: number;
  readonly kernel: number;
}

/** The time of a process so far (fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms). */
export async function processorOf({ pid }: ChildProcess): Promise<ProcessorTime> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return { user: Number(fields[11]) / 100, kernel: Number(fields[12]) / 100 };
}

/** CPU time of the hops so far, seconds. */
export async function cpuSeconds({ processes }: Hops): Promise<number> {
  const times = await Promise.all(processes.map(processorOf));
  return times.reduce((sum, { user, kernel }) => sum + user + kernel, 0);
}
