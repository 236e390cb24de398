// quiet: it waits for the minute in which programs look at the servers, and uses little of the processor
/**
 * Shipped programs whose API servers are replaced one by one by servers at other addresses, until none of the configured ones is left (docs/design/kube.md#failure-story): they go on, and
 * so do their next starts.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { resources } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import type { SeedObject } from "#lab/api-server";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { Relays, serversSlice } from "#test/relay";
import { NODE, ServiceBed } from "#test/service-bed";

const NAMES = { organization: "test", notBefore: Date.now() - 3_600_000, notAfter: Date.now() + 3_600_000 };
/** The programs look at the servers each minute. */
const LOOK_MS = 75_000;
const SOON = { deadlineMs: 15_000, everyMs: 500 };
/** A controller that was killed has its Lease for a while. */
const LEASE_MS = 40_000;
const MERGE = "merge";

/** A kubeconfig of the first server alone. */
const kubeconfigOf = (port: number, ca: string, token: string): string =>
  JSON.stringify({
    ...{ apiVersion: "v1", kind: "Config", "current-context": "c" },
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    clusters: [
      {
        name: "c",
        cluster: {
          server: `https://127.0.0.1:${port}`,
          "certificate-authority-data": Buffer.from(ca).toString("base64"),
        },
      },
    ],
    users: [{ name: "u", user: { token } }],
  });

test("API servers: three are killed in turn under changes and replaced at other addresses; a daemon, a controller and a proxy go on, and so do their next starts", {
  timeout: 240_000,
}, async (t) => {
  const cluster = await ServiceBed.open(`isp-api-${process.pid}`, { service: { type: "ClusterIP" } });
  t.after(() => cluster[Symbol.asyncDispose]());
  const { client, folder } = cluster;
  cluster.server.seed(coilCrds as readonly unknown[] as readonly SeedObject[]);
  // All servers of a cluster have one port. Their certificate is for 127.0.0.1, the configured name.
  const ca = createAuthority({ commonName: "ca", ...NAMES });
  const certificate = issueServerCertificate(ca, { hosts: ["127.0.0.1"], ...NAMES });
  const relays = new Relays(new URL(cluster.server.urls[0] ?? ""), certificate);
  t.after(() => relays.close());
  for (const last of [1, 2, 3]) await relays.begin(`127.0.0.${last}`);
  await client.create(resources.endpointSlices, serversSlice(relays.port, relays.hosts));
  const replace = async (old: number): Promise<void> => {
    await relays.end(`127.0.0.${old}`);
    await relays.begin(`127.0.0.${old + 3}`);
    const { endpoints } = serversSlice(relays.port, relays.hosts);
    const ref = { namespace: "default", name: "kubernetes" };
    await client.patch(resources.endpointSlices, ref, { type: MERGE, body: { endpoints } });
  };

  const kubeconfig = (token: string): string => {
    const path = join(folder, `of-${token}`);
    writeFileSync(path, kubeconfigOf(relays.port, ca.cert, token));
    return `--kubeconfig=${path}`;
  };
  const listeners = [{ name: "host", role: "host", address: "127.0.0.1", port: await freePort() }];
  writeFileSync(join(folder, "uplinks.json"), JSON.stringify({ version: 1, uplinks: [], listeners }));
  const none = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"];
  const flags: Readonly<Record<string, readonly string[]>> = {
    "service-proxy": [
      ...[kubeconfig("proxy"), "--min-sync-period=0s", `--hostname-override=${NODE}`],
      `--netns=/run/netns/${cluster.netnsName("node")}`,
    ],
    "coil-ipam-controller": [kubeconfig("admin"), ...none, "--webhook-addr=none"],
    "uplink-proxy": [
      ...[kubeconfig("admin"), "--parts=proxy", "--cdi", `--config=${join(folder, "uplinks.json")}`],
      ...[`--run-dir=${join(folder, "uplink-run")}`, `--secrets-dir=${join(folder, "secrets")}`],
    ],
  };
  const programs = Object.keys(flags);
  const run = (): ReadonlyMap<string, Running> =>
    new Map(
      programs.map((name) => {
        const env = {
          ...{ RUNTIME_DIRECTORY: folder, COIL_POD_NAMESPACE: "kube-system", COIL_POD_NAME: name },
        };
        const running = start([ISTHMUS, name, ...(flags[name] ?? [])], { env, timeoutMs: 240_000 });
        t.after(async () => {
          running.child.kill("SIGKILL");
          await running.ended;
        });
        return [name, running];
      }),
    );
  const kept = (name: string): string => {
    const path = join(folder, name, "api-servers.json");
    return existsSync(path) ? readFileSync(path, "utf8") : "";
  };
  const areKept = (host: string) => programs.every((name) => kept(name).includes(`"${host}:`));
  const said = (running: ReadonlyMap<string, Running>) => () =>
    [...running].map(([name, one]) => `${name}: ${one.said()}`).join("\n") + programs.map(kept).join("");

  let changes = 0;
  /** A change of now reaches the kernel by service-proxy, and a request of a block is answered. */
  const goOn = async (running: ReadonlyMap<string, Running>, { deadlineMs } = SOON): Promise<void> => {
    changes += 1;
    const address = `10.9.9.${changes}`;
    await cluster.setEndpoints(4, [{ addresses: [address], conditions: { ready: true } }]);
    const metadata = { name: `p${changes}` };
    const subnets = [{ ipv4: `10.${100 + changes}.0.0/24` }];
    await client.create(coilResources.addressPools, { metadata, spec: { blockSizeBits: 3, subnets } });
    const spec = { nodeName: NODE, poolName: metadata.name };
    await client.create(coilResources.blockRequests, { metadata, spec });
    const isAnswered = async (): Promise<boolean> =>
      ((await client.get(coilResources.blockRequests, metadata)).status?.conditions ?? []).some(
        ({ type, status }) => type === "Complete" && status === "True",
      );
    const look = { ...SOON, deadlineMs, seen: said(running) };
    await until(`change ${changes} is in the kernel`, () => cluster.nft(["list", "ruleset"]).includes(address), look);
    await until(`request ${changes} is answered`, isAnswered, look);
    for (const [name, { child }] of running) assert.equal(child.exitCode, null, name);
  };

  const first = run();
  await until("all know the first three", () => areKept("127.0.0.3"), { ...SOON, seen: said(first) });
  await goOn(first);
  await replace(1);
  await goOn(first);
  await replace(2);
  await goOn(first);
  await until("all know those that took their places", () => areKept("127.0.0.5"), {
    ...{ deadlineMs: LOOK_MS, everyMs: 500, seen: said(first) },
  });
  await replace(3);
  await goOn(first);
  for (const { child } of first.values()) child.kill("SIGKILL");
  await Promise.all([...first.values()].map(({ ended }) => ended));

  const next = run();
  await until("the next starts know the servers of now", () => areKept("127.0.0.6"), {
    ...SOON,
    seen: said(next),
  });
  await goOn(next, { ...SOON, deadlineMs: LEASE_MS });
});
