/** Whom the client trusts: certificate authorities as client-go reads them. The certificates are made by openssl, as those of a company's authority are. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, KubeConfigError, KubeError, loadKubeConfig, resources } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-trust-"));
const at = (name: string): string => join(folder, name);
const openssl = (line: string): void => void execFileSync("openssl", line.split(" "), { cwd: folder, stdio: "ignore" });
const pem = (name: string): string => readFileSync(at(`${name}.crt`), "utf8");

function issue(name: string, issuer: string, extensions: string): void {
  writeFileSync(at(`${name}.ext`), extensions);
  openssl(
    `req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ${name}.key -out ${name}.csr -subj /CN=${name}`,
  );
  openssl(
    `x509 -req -in ${name}.csr -CA ${issuer}.crt -CAkey ${issuer}.key -CAcreateserial -days 2 -extfile ${name}.ext -out ${name}.crt`,
  );
}

before(() => {
  for (const root of ["root", "other"])
    openssl(
      `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ${root}.key -out ${root}.crt -days 2 -subj /CN=${root}`,
    );
  issue("middle", "root", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n");
  issue("server", "middle", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n");
});
after(() => rmSync(folder, { recursive: true }));

async function ask(ca: string | undefined, skip = false): Promise<number> {
  const server = createServer({ cert: pem("server"), key: readFileSync(at("server.key")) }, (_, response) =>
    response.end(JSON.stringify({ kind: "NodeList", metadata: { resourceVersion: "1" }, items: [] })),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cluster = {
    server: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    ...(ca === undefined ? {} : { "certificate-authority-data": Buffer.from(ca).toString("base64") }),
    "insecure-skip-tls-verify": skip,
  };
  const config = {
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "k" } }],
    clusters: [{ name: "k", cluster }],
  };
  writeFileSync(at("config"), JSON.stringify(config));
  const client = new KubeClient(await loadKubeConfig({ path: at("config"), clock: systemClock }), {
    clock: systemClock,
  });
  try {
    return (await client.list(resources.nodes, {})).items.length;
  } finally {
    await client.close();
    server.closeAllConnections();
    server.close();
  }
}

const broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

test("KubeClient: an authority that is an intermediate, or the server's own certificate, is trusted as it is by kubectl", async () => {
  assert.equal(await ask(pem("middle")), 0);
  assert.equal(await ask(pem("server")), 0);
  assert.equal(await ask(`${pem("root")}${pem("middle")}`), 0);
});

test("KubeClient: in a bundle, what is no certificate is passed over", async () => {
  const middle = pem("middle");
  for (const bundle of [
    `${broken}${middle}`,
    `# Our authority\n${pem("other")}\nsubject=CN = middle\n${middle.replaceAll("\n", "\r\n")}`,
    `-----BEGIN CERTIFICATE-----\nProc-Type: 4\n\nMIIB\n-----END CERTIFICATE-----\n${readFileSync(at("root.key"), "utf8")}${middle}`,
    `-----BEGIN CERTIFICATE-----\nMIIB\n${middle}`,
  ])
    assert.equal(await ask(bundle), 0, bundle);
  await assert.rejects(ask(broken), (error) => {
    assert.ok(error instanceof KubeConfigError && error.code === "invalid", String(error));
    assert.match(
      error.message,
      /^the certificate-authority of .*config has no certificate that can be read: a PEM text/,
    );
    return true;
  });
});

test("KubeClient: a certificate that nobody has signed whom we trust is named as such, with whom we trust, and without flags of Node", async () => {
  const rejects = (ca: string | undefined, text: RegExp): Promise<void> =>
    assert.rejects(ask(ca), (error) => {
      assert.ok(error instanceof KubeError && error.code === "unreachable", String(error));
      assert.match(error.message, text);
      assert.doesNotMatch(error.message, /--use-system-ca|Node/);
      return true;
    });
  await rejects(
    pem("other"),
    /127\.0\.0\.1:\d+ is not trusted: its certificate is signed by none of the authorities of the certificate-authority of .*config/,
  );
  await rejects(pem("root"), /is not trusted/);
  await rejects(undefined, /is not trusted: .* authorities of this machine, as no certificate-authority is set/);
  assert.equal(await ask(undefined, true), 0);
});
