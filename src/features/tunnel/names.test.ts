/** Names without an answer, and their cost for other dials (docs/spec/tunnel.md#5.3). */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { SystemNames } from "#base/names";
import { dnsServer } from "#test/dns-server";
import { Bed } from "./testing/bed.ts";
import { TunnelClient } from "./testing/client.ts";

test("tunnel: dials of names at a dead resolver delay neither addresses nor names of the hosts file", {
  timeout: 30_000,
}, async (t) => {
  const { server } = await dnsServer(t, () => "silent");
  const folder = mkdtempSync(join(tmpdir(), "isthmus-names-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [hostsPath, resolvConfPath] = [join(folder, "hosts"), join(folder, "resolv.conf")];
  writeFileSync(hostsPath, "127.0.0.1 endpoint.example\n");
  writeFileSync(resolvConfPath, `nameserver ${server}\n`);
  await using bed = await Bed.open({ names: new SystemNames({ clock: systemClock }, { hostsPath, resolvConfPath }) });
  await bed.agent();
  const port = await bed.endpoint((socket) => socket.pipe(socket));
  const open = async (): Promise<TunnelClient> => TunnelClient.open(await bed.socket(bed.frontendPort));
  const dead = await Promise.all(Array.from({ length: 60 }, open));
  const waiting = dead.map((client, at) => client.dial(`${at}.example:80`));
  const client = await open();
  for (const host of ["endpoint.example", "127.0.0.1"]) {
    const before = performance.now();
    const fresh = host === "127.0.0.1" ? await open() : client;
    assert.equal((await fresh.dial(`${host}:${port}`)).kind, "open");
    assert.ok(performance.now() - before < 500, `${host} took ${(performance.now() - before).toFixed(0)} ms`);
  }
  for (const answer of await Promise.all(waiting)) {
    assert.equal(answer.kind, "refused");
    assert.match(answer.kind === "refused" ? answer.error : "", /i\/o timeout/);
  }
  assert.deepEqual(bed.bugs, []);
});
