import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect } from "node:tls";
import { promisify } from "node:util";
import fc from "fast-check";
import { createAuthority, issueCertificate, issueServerCertificate, X509Error } from "./index.ts";

const DAY_MS = 86_400_000;
const NOW = Date.now();
const validity = { notBefore: NOW - DAY_MS, notAfter: NOW + 365 * DAY_MS };
const hosts = ["hooks.kube-system.svc", "hooks.kube-system.svc.cluster.local", "192.0.2.1", "2001:db8::1"];

/** Runs openssl(1) on files with these texts. */
async function openssl(t: TestContext, files: Readonly<Record<string, string>>, ...args: string[]): Promise<string> {
  const cwd = await mkdtemp(join(tmpdir(), "isthmus-x509-"));
  t.after(() => rm(cwd, { recursive: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(cwd, name), text);
  return (await promisify(execFile)("openssl", args, { cwd })).stdout;
}

test("x509: openssl verifies a server's certificate strictly, for its names and addresses and for no others", async (t) => {
  const authority = createAuthority({ commonName: "coil-ipam-ca", organization: "coil", ...validity });
  const { cert } = issueServerCertificate(authority, { hosts, organization: "coil", ...validity });
  const files = { "ca.crt": authority.cert, "tls.crt": cert };
  const verify = (...more: string[]): Promise<string> =>
    openssl(t, files, "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.crt", ...more, "tls.crt");
  for (const name of hosts) {
    assert.match(await verify(name.includes("svc") ? "-verify_hostname" : "-verify_ip", name), /^tls.crt: OK$/m);
  }
  await assert.rejects(verify("-verify_hostname", "other.kube-system.svc"), /hostname mismatch/i);
  await assert.rejects(verify("-verify_ip", "192.0.2.2"), /IP address mismatch/i);
  await assert.rejects(verify("-attime", String(Math.floor(NOW / 1000) + 366 * 86_400)), /expired/);
  await assert.rejects(verify("-attime", String(Math.floor(NOW / 1000) - 2 * 86_400)), /not yet valid/);
  const other = createAuthority({ commonName: "coil-ipam-ca", organization: "coil", ...validity });
  await assert.rejects(
    openssl(t, { ...files, "ca.crt": other.cert }, "verify", "-CAfile", "ca.crt", "tls.crt"),
    /unable to get local issuer certificate/,
  );
});

test("x509: openssl reads every field", async (t) => {
  const authority = createAuthority({ commonName: "coil-ipam-ca", organization: "coil", ...validity });
  const { cert, key } = issueServerCertificate(authority, { hosts, organization: "coil", ...validity });
  const text = (pem: string): Promise<string> => openssl(t, { pem }, "x509", "-in", "pem", "-noout", "-text");
  const [ca, server] = [await text(authority.cert), await text(cert)];
  assert.match(ca, /Subject: O ?= ?coil, CN ?= ?coil-ipam-ca/);
  assert.match(ca, /Basic Constraints: critical\s+CA:TRUE, pathlen:0/);
  assert.match(ca, /Key Usage: critical\s+Certificate Sign, CRL Sign/);
  assert.match(server, /Version: 3 \(0x2\)/);
  assert.match(server, /Issuer: O ?= ?coil, CN ?= ?coil-ipam-ca/);
  assert.match(server, /Subject: O ?= ?coil, CN ?= ?hooks.kube-system.svc\n/);
  assert.match(server, /Basic Constraints: critical\s+CA:FALSE/);
  assert.match(server, /Key Usage: critical\s+Digital Signature\n/);
  assert.match(server, /Extended Key Usage: \s+TLS Web Server Authentication\n/);
  assert.match(
    server,
    /DNS:hooks.kube-system.svc, DNS:hooks.kube-system.svc.cluster.local, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1/,
  );
  assert.match(server, /Signature Algorithm: ecdsa-with-SHA256/);
  await openssl(t, { key }, "pkey", "-in", "key", "-check", "-noout");
});

test("x509: a client's certificate without names is one for clients alone, and one for both is for both", async (t) => {
  const authority = createAuthority({ commonName: "ca", ...validity });
  const both = { ...validity, commonName: "both", hosts: ["localhost"], usages: ["serverAuth", "clientAuth"] } as const;
  const files = {
    "ca.crt": authority.cert,
    "client.crt": issueCertificate(authority, { ...both, hosts: [], usages: ["clientAuth"] }).cert,
    "both.crt": issueCertificate(authority, both).cert,
  };
  const verify = (purpose: string, file: string): Promise<string> =>
    openssl(t, files, "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", file);
  assert.match(await verify("sslclient", "client.crt"), /^client.crt: OK$/m);
  await assert.rejects(verify("sslserver", "client.crt"), /unsuitable certificate purpose/i);
  for (const purpose of ["sslclient", "sslserver"]) assert.match(await verify(purpose, "both.crt"), /^both.crt: OK$/m);
});

test("x509: a TLS client that trusts the authority connects under a name of the certificate", async () => {
  const authority = createAuthority({ commonName: "ca", organization: "coil", ...validity });
  const server = createServer(issueServerCertificate(authority, { hosts, organization: "coil", ...validity }));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const attempt = async (servername: string): Promise<void> => {
    const socket = connect({ port, host: "127.0.0.1", ca: authority.cert, servername });
    try {
      await once(socket, "secureConnect");
    } finally {
      socket.destroy();
    }
  };
  try {
    await attempt("hooks.kube-system.svc");
    await assert.rejects(attempt("other.kube-system.svc"), { code: "ERR_TLS_CERT_ALTNAME_INVALID" });
  } finally {
    server.close();
  }
});

test("x509: names without meaning, too long ones, and an empty time are refused with the value", () => {
  const authority = createAuthority({ commonName: "ca", organization: "coil", ...validity });
  const issue = (init: { hosts?: string[]; notAfter?: number }) => () =>
    issueServerCertificate(authority, { hosts, organization: "coil", ...validity, ...init });
  assert.throws(issue({ hosts: [] }), /at least one name/);
  assert.throws(issue({ hosts: ["a b"] }), /"a b" is neither a DNS name nor an IP address/);
  assert.throws(issue({ hosts: ["x".repeat(65)] }), /must have 1 to 64 characters/);
  assert.throws(issue({ notAfter: validity.notBefore }), /cannot be valid from/);
});

test("x509: any names and times become a certificate that Node reads the same way (property)", () => {
  const label = fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?$/);
  const name = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
  // 1960 to 2100: both forms of time.
  const second = fc.integer({ min: -315_619_200, max: 4_102_444_800 });
  const authority = createAuthority({ commonName: "ca", organization: "coil", ...validity });
  const ca = new X509Certificate(authority.cert);
  fc.assert(
    fc.property(fc.array(name, { minLength: 1, maxLength: 30 }), second, fc.nat(1e9), (names, from, length) => {
      const init = { hosts: names, organization: "coil", notBefore: from * 1000, notAfter: (from + length + 1) * 1000 };
      try {
        const { cert } = issueServerCertificate(authority, init);
        const read = new X509Certificate(cert);
        assert.ok(read.verify(ca.publicKey) && read.checkIssued(ca));
        assert.equal(Date.parse(read.validFrom), init.notBefore);
        assert.equal(Date.parse(read.validTo), init.notAfter);
        assert.ok(!/^-/.test(read.serialNumber) && read.serialNumber.length === 32);
        for (const host of names) if (!/^[0-9.]+$/.test(host)) assert.equal(read.checkHost(host), host);
      } catch (error) {
        assert.ok(error instanceof X509Error && names[0] !== undefined && names[0].length > 64, String(error));
      }
    }),
    { numRuns: 100 },
  );
});
