import assert from "node:assert/strict";
import { test } from "node:test";
import { createSecureContext } from "node:tls";
import { ConfigError } from "#base/config";
import { isOldTls, opensslCiphers, parseTlsVersion } from "./cipher-suites.ts";

const TLS13 = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

test("opensslCiphers: without names the secure suites, without CBC", () => {
  const list = opensslCiphers([]);
  assert.ok(list.startsWith(`${TLS13}:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:`));
  assert.equal(list.split(":").length, 9);
  assert.doesNotMatch(list, /SHA(:|$)/);
  createSecureContext({ ciphers: list });
});

test("opensslCiphers: every name that Go deems secure becomes one that OpenSSL takes", () => {
  const ends = ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305"];
  for (const end of [...ends, "AES_128_CBC_SHA", "AES_256_CBC_SHA"]) {
    for (const key of ["ECDSA", "RSA"]) {
      const list = opensslCiphers([`TLS_ECDHE_${key}_WITH_${end}`]).split(":");
      assert.equal(list.length, 4, end);
      assert.match(list[3] ?? "", new RegExp(`^ECDHE-${key}-`));
      createSecureContext({ ciphers: list.join(":") });
    }
  }
});

test("opensslCiphers: names of TLS 1.3 suites change nothing", () => {
  assert.equal(opensslCiphers(TLS13.split(":")), opensslCiphers([]));
});

test("opensslCiphers: unknown and insecure names are refused, each by name", () => {
  const names = ["TLS_RSA_WITH_RC4_128_SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", "constructor", "ECDHE-RSA-AES128-SHA"];
  assert.throws(
    () => opensslCiphers(names),
    (error) => {
      assert.ok(error instanceof ConfigError);
      assert.deepEqual(
        error.faults.map((fault) => fault.split(" ")[0]),
        names.map((name) => `"${name}"`),
      );
      return true;
    },
  );
});

test("parseTlsVersion: Konnectivity's names, 1.2 for none", () => {
  const names = ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
  assert.deepEqual(names.map(parseTlsVersion), ["TLSv1.2", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]);
  assert.deepEqual(names.map(parseTlsVersion).map(isOldTls), [false, true, true, false, false]);
  for (const name of ["1.2", "TLSv1.2", "VersionSSL30", "toString"]) {
    assert.throws(() => parseTlsVersion(name), { name: "ConfigError", message: new RegExp(`^"${name}" is not a TLS`) });
  }
});
