/** The peer of service-sync: kube-proxy's layout, a chain and an anonymous map for each Service, given to nft(8). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LayoutService, layoutChange, layoutR } from "#test/service-layout-r";
import { measure, peakMiB, type Sample } from "./service-sync.measure.ts";
import { clusterIP, endpointAddresses, openWorld, SERVICE_PORT, TARGET_PORT } from "./service-sync.world.ts";

const CHANGES = 5;
/** The interval of readings of nft's peak memory, in milliseconds. */
const LOOK_MS = 20;

/** Measures one size; every step is stopped at the limit, in milliseconds. */
export async function runPeer(size: number, limitMs: number): Promise<Sample> {
  const name = `isb-peer-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), "service-sync-"));
  try {
    await using world = await openWorld(name);
    let peak = 0;
    const run = async (script: string): Promise<boolean> => {
      const path = join(folder, "script.nft");
      writeFileSync(path, script);
      const ended = await runNft(name, path, limitMs);
      peak = Math.max(peak, ended.peak);
      return ended.isDone;
    };
    const services = Array.from({ length: size }, (_, at) => serviceOf(at));
    const script = layoutR({ family: 4, services });
    return await measure({
      netns: world.netns,
      size,
      fill: async () => ({ isDone: await run(script), bytes: Buffer.byteLength(script) }),
      change: async (turn) => {
        await run(layoutChange(4, serviceOf(Math.floor(size / 2), turn)));
      },
      changes: CHANGES,
      peakMiB: () => peak,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** `isDone` is false if the limit ended the step. */
async function runNft(
  netns: string,
  path: string,
  limitMs: number,
): Promise<{ readonly isDone: boolean; readonly peak: number }> {
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
      // The process has ended between two readings.
    }
  }, LOOK_MS);
  const [code] = (await once(nft, "exit")) as [number | null];
  clearInterval(look);
  return { isDone: code === 0, peak };
}

function serviceOf(at: number, turn = 0): LayoutService {
  const name = `ns/svc-${at}`;
  const endpoints = endpointAddresses(at, turn);
  return { name, address: clusterIP(at), port: SERVICE_PORT, endpoints, targetPort: TARGET_PORT };
}
