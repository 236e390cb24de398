/** The peer of service-sync: kube-proxy's layout, a chain and an anonymous map for each Service, given to nft(8). */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  clusterIP,
  endpointAddresses,
  firstPackets,
  openWorld,
  peakMiB,
  quantiles,
  type Sample,
  SERVICE_PORT,
  TARGET_PORT,
  whileAnswering,
} from "./service-sync.world.ts";

const CHANGES = 5;
/** How often the peak of nft is looked at, milliseconds. */
const LOOK_MS = 20;

/** Measures one size; nothing takes longer than the limit, milliseconds. */
export async function runPeer(size: number, limitMs: number): Promise<Sample> {
  const name = `isb-peer-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), "service-sync-"));
  try {
    await using world = await openWorld(name);
    const run = async (script: string): Promise<{ readonly ms: number; readonly peak: number }> => {
      const path = join(folder, "script.nft");
      writeFileSync(path, script);
      return runNft(name, path, limitMs);
    };
    const script = wholeTable(size);
    const first = await whileAnswering(() => run(script));
    const isThere = first.result.ms < limitMs;
    const changes: number[] = [];
    for (let turn = 1; turn <= (isThere ? CHANGES : 1); turn += 1) {
      changes.push((await run(oneChange(Math.floor(size / 2), turn))).ms);
    }
    return {
      firstSyncMs: Math.min(limitMs, first.result.ms),
      bytes: Buffer.byteLength(script),
      peakMiB: first.result.peak,
      changeMs: quantiles(changes),
      firstPacketUs: isThere ? await firstPackets(world.netns) : null,
      blockMs: first.blockMs,
      answerMs: first.answerMs,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function runNft(
  netns: string,
  path: string,
  limitMs: number,
): Promise<{ readonly ms: number; readonly peak: number }> {
  const startedAt = performance.now();
  const nft = spawn("ip", ["netns", "exec", netns, "nft", "-f", path], {
    stdio: ["ignore", "ignore", "ignore"],
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  let peak = 0;
  const look = setInterval(() => {
    try {
      if (nft.pid !== undefined) peak = Math.max(peak, peakMiB(nft.pid));
    } catch {
      // It has ended between two looks.
    }
  }, LOOK_MS);
  await once(nft, "exit");
  clearInterval(look);
  return { ms: performance.now() - startedAt, peak };
}

function chainOf(service: number): string {
  const text = `ns/svc-${service}/tcp/http`;
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 8).toUpperCase();
  return `service-${hash}-${text}`;
}

function rulesOf(service: number, turn = 0): string {
  const targets = endpointAddresses(service, turn).map((address, at) => `${at} : ${address} . ${TARGET_PORT}`);
  const map = `numgen random mod ${targets.length} map { ${targets.join(", ")} }`;
  return `add rule ip kube-proxy ${chainOf(service)} meta l4proto tcp dnat ip to ${map}\n`;
}

function oneChange(service: number, turn: number): string {
  return `flush chain ip kube-proxy ${chainOf(service)}\n${rulesOf(service, turn)}`;
}

function wholeTable(size: number): string {
  const parts = [
    "add table ip kube-proxy\n",
    "add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }\n",
    "add set ip kube-proxy cluster-ips { type ipv4_addr ; }\n",
    "add chain ip kube-proxy services\n",
    "add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips\n",
    ...["prerouting", "output"].flatMap((hook) => [
      `add chain ip kube-proxy nat-${hook} { type nat hook ${hook} priority -100 ; }\n`,
      `add rule ip kube-proxy nat-${hook} jump services\n`,
    ]),
  ];
  for (let service = 0; service < size; service += 1) {
    const address = clusterIP(service);
    parts.push(`add chain ip kube-proxy ${chainOf(service)}\n`, rulesOf(service));
    parts.push(`add element ip kube-proxy cluster-ips { ${address} }\n`);
    parts.push(
      `add element ip kube-proxy service-ips { ${address} . tcp . ${SERVICE_PORT} : goto ${chainOf(service)} }\n`,
    );
  }
  return parts.join("");
}
