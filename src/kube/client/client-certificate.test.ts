import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Clock, FakeClock, systemClock } from "#base/clock";
import { type CertificatePair, createAuthority, issueCertificate, issueServerCertificate } from "#base/x509";
import { KubeClient, KubeConfigError, loadKubeConfig, resources } from "./index.ts";

const VALID = { notBefore: Date.now() - 60_000, notAfter: Date.now() + 3_600_000 };
const authority = createAuthority({ commonName: "ca", organization: "isthmus", ...VALID });

function clientPair(): CertificatePair {
  return issueCertificate(authority, {
    commonName: "me",
    organization: "isthmus",
    hosts: [],
    usages: ["clientAuth"],
    ...VALID,
  });
}

/** A server that wants a certificate of the authority, and a client whose certificate, key and authority are files. */
async function open(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-client-certificate-"));
  t.after(() => rm(folder, { recursive: true }));
  const { cert, key } = issueServerCertificate(authority, { hosts: ["127.0.0.1"], organization: "isthmus", ...VALID });
  const sockets = new Set<object>();
  const server = createServer(
    { cert, key, ca: authority.cert, requestCert: true, rejectUnauthorized: true },
    (_, response) => response.end(JSON.stringify({ kind: "NodeList", metadata: { resourceVersion: "1" }, items: [] })),
  );
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const write = async (files: Readonly<Record<string, string>>): Promise<void> => {
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  };
  await write({
    config: JSON.stringify({
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "k", user: "u" } }],
      clusters: [
        {
          name: "k",
          cluster: {
            server: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
            "certificate-authority": "ca.pem",
          },
        },
      ],
      users: [{ name: "u", user: { "client-certificate": "cert.pem", "client-key": "key.pem" } }],
    }),
  });
  const connect = async (clock: Clock = systemClock) => {
    const client = new KubeClient(await loadKubeConfig({ path: join(folder, "config"), clock }), { clock });
    t.after(() => client.close());
    return client;
  };
  return { folder, write, connect, sockets };
}

test("client certificates: what OpenSSL refuses fails the call, which names it, and works as soon as the file is right", async (t) => {
  const { write, connect, sockets, folder } = await open(t);
  const [mine, other] = [clientPair(), clientPair()];
  const good = { "cert.pem": mine.cert, "key.pem": mine.key, "ca.pem": authority.cert };
  const cut = (text: string): string => text.slice(0, text.length / 2);
  for (const [what, bad] of [
    ["a key of another certificate", { "key.pem": other.key }],
    ["half of a key", { "key.pem": cut(mine.key) }],
    ["half of a certificate", { "cert.pem": cut(mine.cert) }],
  ] as const) {
    await write({ ...good, ...bad });
    const client = await connect();
    for (const _ of ["at once", "again"]) {
      await assert.rejects(
        client.list(resources.nodes),
        (error) => {
          assert.ok(error instanceof KubeConfigError, `${what}: ${error}`);
          assert.equal(error.code, "invalid");
          assert.ok(error.message.includes(folder), error.message);
          assert.ok(!error.message.includes("\n"), error.message);
          return true;
        },
        what,
      );
    }
    await write(good);
    // Without the minute for which files are kept.
    assert.deepEqual((await client.list(resources.nodes)).items, [], what);
    await client.close();
  }
  while (sockets.size > 0) await new Promise((resolve) => setTimeout(resolve, 5));
});

test("client certificates: a pair that is replaced between its two reads is read again", async (t) => {
  const { write, connect } = await open(t);
  const [before, after] = [clientPair(), clientPair()];
  await write({ "cert.pem": before.cert, "key.pem": before.key, "ca.pem": authority.cert });
  const clock = new FakeClock();
  const client = await connect(clock);
  await client.list(resources.nodes);
  await write({ "cert.pem": after.cert });
  await clock.advance(60_000);
  await assert.rejects(client.list(resources.nodes), KubeConfigError);
  await write({ "key.pem": after.key });
  assert.deepEqual((await client.list(resources.nodes)).items, []);
});
