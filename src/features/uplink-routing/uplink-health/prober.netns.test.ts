import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { ProbeTarget } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { makeCertificates } from "#test/certificates";
import { SOURCE_NODE } from "#test/node";
import { Bed } from "#test/uplink-wan-bed";
import { applyRouting, planRouting } from "../routing/index.ts";
import { makeSnapshot, readKernel } from "../state/index.ts";

/** A node whose uplinks are routed, and a process inside it that sends the probes it is told to. */
async function setUp(t: TestContext) {
  const hosts = ["registry.example", "203.0.113.80", "2001:db8:80::80"];
  const [system, own] = ["system", "own"].map((name) => makeCertificates(`isthmus-${name}`, { web: hosts }));
  assert.ok(system !== undefined && own !== undefined);
  const dir = mkdtempSync(join(tmpdir(), "isthmus-prober-"));
  t.after(() => rmSync(dir, { recursive: true }));
  mkdirSync(join(dir, "empty"));
  writeFileSync(join(dir, "system.pem"), system.ca);
  writeFileSync(join(dir, "own.pem"), own.ca);
  writeFileSync(join(dir, "broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const bed = await Bed.create();
  t.after(() => bed[Symbol.asyncDispose]());
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks: bed.uplinkEntries }), "test");
  applyRouting(bed.stack, planRouting(settings, readKernel(bed.stack)).changes);
  const snapshot = makeSnapshot({ settings, ready: true, listing: readKernel(bed.stack) });
  const script = `
    import { createInterface } from "node:readline";
    import { IpAddress } from "#base/ip";
    import { openProber } from ${JSON.stringify(new URL("./index.ts", import.meta.url).href)};
    const prober = openProber();
    const ip = (text) => IpAddress.parse(text);
    for await (const line of createInterface({ input: process.stdin })) {
      const { uplink, target, timeoutMs } = JSON.parse(line);
      const parsed = { ...uplink, dnsServers: uplink.dnsServers.map(ip), addresses: uplink.addresses.map((own) => ({ ...own, address: ip(own.address) })) };
      const outcome = await prober.probe(parsed, target, { timeoutMs, signal: new AbortController().signal });
      process.stdout.write(JSON.stringify(outcome) + "\\n");
    }`;
  const [file, args] = bed.inside(...SOURCE_NODE, "--input-type=module", "-e", script);
  const cwd = new URL("../../../..", import.meta.url).pathname;
  const child: ChildProcess = spawn(file, args, {
    stdio: ["pipe", "pipe", "inherit"],
    cwd,
    // The system's authorities, which Node.js does not use by itself.
    env: { ...process.env, SSL_CERT_FILE: join(dir, "system.pem"), SSL_CERT_DIR: join(dir, "empty") },
  });
  t.after(() => child.kill("SIGKILL"));
  const probe = async (at: 0 | 1, target: ProbeTarget, addresses?: string): Promise<string> => {
    const whole = snapshot.uplinks[at];
    assert.ok(whole !== undefined);
    const own = whole.addresses.filter(({ address }) => addresses === undefined || String(address) === addresses);
    assert.ok(child.stdin !== null && child.stdout !== null);
    child.stdin.write(`${JSON.stringify({ uplink: { ...whole, addresses: own }, target, timeoutMs: 700 })}\n`);
    const [line] = (await once(child.stdout, "data")) as [Buffer];
    const { kind, reason } = JSON.parse(line.toString());
    return reason === undefined ? kind : `${kind}: ${reason}`;
  };
  return { bed, probe, dir, system: system.pairs.web, own: own.pairs.web };
}

test("prober: tcp, http, https and dns go out over the uplink they are for, by both families, and nothing over the other", async (t) => {
  const { bed, probe, system } = await setUp(t);
  for (const wan of [bed.wan0, bed.wan1]) wan.serveWeb(system);
  const targets: readonly ProbeTarget[] = [
    { type: "tcp", host: "203.0.113.80", port: 80 },
    { type: "tcp", host: "2001:db8:80::80", port: 80 },
    { type: "tcp", host: "registry.example", port: 443 },
    { type: "http", url: "http://203.0.113.80/a" },
    { type: "http", url: "http://[2001:db8:80::80]/b" },
    { type: "http", url: "https://registry.example/c", status: 200 },
    { type: "http", url: "https://203.0.113.80/d", body: "wan1 198.51" },
    { type: "dns", name: "registry.example" },
    { type: "dns", name: "no.such.example" },
  ];
  for (const target of targets) assert.equal(await probe(1, target), "ok", JSON.stringify(target));
  assert.equal(bed.wan0.packets, 0);
  assert.deepEqual(bed.wan1.requests, [
    "198.51.100.10 GET /a",
    "2001:db8:2::10 GET /b",
    "198.51.100.10 GET /c",
    "198.51.100.10 GET /d",
  ]);
  assert.ok(bed.wan1.dns.questions.includes("A no.such.example"));
});

test("prober: a failure has a short reason, an impossible probe is skipped", async (t) => {
  const { bed, probe } = await setUp(t);
  bed.wan0.serveWeb();
  const tcp = { type: "tcp", host: "203.0.113.80", port: 80 } as const;
  assert.equal(await probe(0, { ...tcp, port: 81 }), "failed: ECONNREFUSED");
  assert.equal(await probe(0, { type: "http", url: "http://203.0.113.80/", status: 204 }), "foreign: status 200");
  assert.equal(await probe(0, tcp, "2001:db8:1::10"), "skipped: no address of the uplink reaches 203.0.113.80");
  assert.equal(await probe(0, { ...tcp, host: "v4.example" }, "2001:db8:1::10"), "failed: ENODATA");
  bed.wan0.break("drop-syn");
  assert.equal(await probe(0, tcp), "failed: timeout");
  bed.wan0.break("swallow");
  assert.equal(await probe(0, tcp), "ok", "a handshake proves nothing");
  assert.equal(await probe(0, { type: "http", url: "http://203.0.113.80/" }), "failed: timeout");
  bed.wan0.dns.mute = true;
  assert.equal(await probe(0, { type: "dns", name: "registry.example" }), "failed: timeout");
  bed.wan0.heal();
  bed.stack.links.set(bed.stack.links.get({ name: "eth0" })?.index ?? 0, { up: false });
  assert.match(await probe(0, tcp), /^failed: (EHOSTUNREACH|ENETUNREACH)$/);
  assert.equal(bed.wan1.packets, 0, "nothing ever left by the other uplink");
});

test("prober: an answer that is not the expected one is somebody else's: another status, a redirect, another text, another authority", async (t) => {
  const { bed, probe, dir, own } = await setUp(t);
  const server = createServer((request, response) => {
    const status = Number(request.url?.slice(1));
    response.writeHead(status, status === 302 ? { location: "http://login.portal.example/?from=probe" } : {});
    response.end("please log in");
  });
  bed.wan0.listen(server, 8080);
  const at = (status: number) => ({ type: "http", url: `http://203.0.113.80:8080/${status}` }) as const;
  assert.equal(await probe(0, at(302)), "foreign: status 302 to http://login.portal.example/?from=probe");
  assert.equal(await probe(0, { ...at(302), status: 302 }), "ok");
  assert.equal(await probe(0, at(204)), "ok");
  assert.equal(await probe(0, at(511)), "foreign: status 511");
  assert.equal(await probe(0, at(503)), "failed: status 503", "the server's own fault");
  assert.equal(await probe(0, { ...at(200), body: "success" }), "foreign: the body lacks the expected text");
  bed.wan0.listen(
    createHttpsServer(own, (_request, response) => response.end()),
    8443,
  );
  const https = { type: "http", url: "https://registry.example:8443/" } as const;
  assert.match(await probe(0, https), /^foreign: certificate: UNABLE_TO_VERIFY_LEAF_SIGNATURE$/);
  assert.equal(await probe(0, { ...https, caFile: join(dir, "own.pem") }), "ok");
  for (const name of ["absent.pem", "broken.pem"])
    assert.match(
      await probe(0, { ...https, caFile: join(dir, name) }),
      new RegExp(`^skipped: caFile.* ${dir}/${name}`),
    );
});

test("prober: the target of the example in deploy is answered as the example expects", async (t) => {
  const { bed, probe, system } = await setUp(t);
  const { settings } = parseSettings(readFileSync("deploy/uplink/uplinks.example.json", "utf8"), "example");
  const registry = createHttpsServer(system, (request, response) =>
    response.writeHead(request.url === "/v2/" ? 401 : 404, { "www-authenticate": "Bearer" }).end(),
  );
  bed.wan0.listen(registry, 443);
  assert.equal(settings.probe.targets.length, 1);
  for (const target of settings.probe.targets) assert.equal(await probe(0, target), "ok");
});
