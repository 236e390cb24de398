import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { rootCertificates } from "node:tls";
import fc from "fast-check";
import { createAuthority } from "#base/x509";
import { authoritiesOf, distrustText, trustIn } from "./index.ts";
import { readStore, storeOf } from "./machine.ts";

const VALID = { notBefore: Date.now() - 60_000, notAfter: Date.now() + 3_600_000, organization: "isthmus" };
const [one, two, three] = ["one", "two", "three"].map((commonName) =>
  createAuthority({ commonName, ...VALID }).cert.trim(),
) as [string, string, string];

test("authoritiesOf: whole certificates at the beginning of a line count, whatever is between them", () => {
  const trimmed = (text: string): string[] => authoritiesOf(text).map((block) => block.trim());
  assert.deepEqual(trimmed(`${one}\n${two}`), [one, two]);
  assert.deepEqual(trimmed(`x ${one}\n${two}`), [two]);
  assert.deepEqual(trimmed(one.replace("CERTIFICATE", "TRUSTED CERTIFICATE")), []);
  assert.deepEqual(trimmed(`${one.slice(0, 60)}\n${two}`), [two]);
  assert.equal(trustIn("nothing"), undefined);
  assert.deepEqual(trustIn(one)?.ca.length, 1);
});

test("authoritiesOf: of any text each result is a certificate, and reading them again gives the same (fuzz)", () => {
  const piece = fc.oneof(
    fc.string(),
    fc.constantFrom(one, two, "-----BEGIN CERTIFICATE-----\n", "\n-----END CERTIFICATE-----\n", "\n", "MIIB", "a: b\n"),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const found = authoritiesOf(pieces.join(""));
      assert.deepEqual(authoritiesOf(found.join("")), found);
    }),
    { numRuns: 500 },
  );
});

test("readStore: the first file with certificates and all folders, without names of the same folder's files; those of Node where there are none", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-store-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const at = (name: string): string => join(folder, name);
  writeFileSync(at("empty"), "");
  writeFileSync(at("bundle"), one);
  writeFileSync(at("later"), three);
  mkdirSync(at("certs"));
  writeFileSync(at("certs/a.pem"), two);
  symlinkSync("a.pem", at("certs/0123abcd.0"));
  symlinkSync(at("bundle"), at("certs/b.pem"));
  symlinkSync("/nowhere/x", at("certs/c.pem"));
  const files = ["absent", "empty", "bundle", "later"].map(at);
  assert.deepEqual(
    readStore({ files, folders: [at("certs"), at("gone")] }).ca.map((text) => text.trim()),
    [one, two],
  );
  assert.deepEqual(readStore({ files: [at("absent")], folders: [] }).ca, rootCertificates);
});

test("storeOf: SSL_CERT_FILE and SSL_CERT_DIR of the caller take the place of the machine's", () => {
  const { files, folders } = storeOf({});
  assert.ok(files.includes("/etc/ssl/certs/ca-certificates.crt") && folders.includes("/etc/ssl/certs"));
  const own = storeOf({ ISTHMUS_KEPT_SSL_CERT_FILE: "/a", ISTHMUS_KEPT_SSL_CERT_DIR: "/b::/c" });
  assert.deepEqual(own, { files: ["/a"], folders: ["/b", "/c"] });
});

test("distrustText: names whom we trust, for each code that says so, also inside of a cause", () => {
  const error = Object.assign(new Error("x"), { code: "SELF_SIGNED_CERT_IN_CHAIN" });
  assert.match(
    distrustText(new Error("y", { cause: error }), "a file") ?? "",
    /none of the authorities of a file \(SELF_SIGNED/,
  );
  assert.equal(distrustText(Object.assign(new Error("x"), { code: "CERT_HAS_EXPIRED" }), "a file"), undefined);
});
