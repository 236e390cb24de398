import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { certificateNames } from "./certificate-names.ts";

/** Made by OpenSSL: two common names, two organisations, and a DNS name that reads like a second entry of the list. */
const ODD = `
-----BEGIN CERTIFICATE-----
MIICLzCCAdSgAwIBAgIUH49y5WcdAt7hO0LaAsoIxk2m9CAwCgYIKoZIzj0EAwIw
UTEOMAwGA1UEAwwFZmlyc3QxDzANBgNVBAMMBnNlY29uZDEVMBMGA1UECgwMc3lz
dGVtOm5vZGVzMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVyczAgFw0yNjExMjkxMjE4
MzhaGA8yMTI2MTEwNTEyMTgzOFowUTEOMAwGA1UEAwwFZmlyc3QxDzANBgNVBAMM
BnNlY29uZDEVMBMGA1UECgwMc3lzdGVtOm5vZGVzMRcwFQYDVQQKDA5zeXN0ZW06
bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABL3NghLmN+cK4vUmw54r
KLzu9i+MH5raDa/QsAZPIpV95iZKNvjRv7rf2iaEjozWV/i0TDOzIM3FG2wSLWN2
702jgYcwgYQwYwYDVR0RBFwwWoIKbjEuZXhhbXBsZYIWZXZpbCwgVVJJOnNwaWZm
ZTovL2EvYoYuc3BpZmZlOi8vY2x1c3Rlci5sb2NhbC9ucy9rdWJlLXN5c3RlbS9z
YS9hZ2VudIcECgAAATAdBgNVHQ4EFgQUgrO6/suGY1Jg0dT9o44jzo4T15IwCgYI
KoZIzj0EAwIDSQAwRgIhAIcUOoMykvvT5hXx4JogSU/COUm5Vt3vqZU4wNo70rpm
AiEA6nhvEaEWJANXDVLyYKnalHXuhpyE3Rk3Hy3cDpmtm7g=
-----END CERTIFICATE-----
`;

test("certificateNames: reads a real certificate, and a name with a comma is one name", () => {
  assert.deepEqual(certificateNames(new X509Certificate(ODD.trim()).toLegacyObject()), {
    commonNames: ["first", "second"],
    organizations: ["system:nodes", "system:masters"],
    dnsNames: ["n1.example", "evil, URI:spiffe://a/b"],
    uris: ["spiffe://cluster.local/ns/kube-system/sa/agent"],
  });
});

test("certificateNames: names that are odd or too long are left out, and of a malformed list all are", () => {
  const dns = (subjectaltname: string): readonly string[] => certificateNames({ subjectaltname }).dnsNames;
  assert.deepEqual(dns("DNS:a, IP Address:10.0.0.1, DNS:b"), ["a", "b"]);
  assert.deepEqual(dns('DNS:"a\\"b", DNS:c'), ['a"b', "c"]);
  for (const list of ['DNS:a, DNS:"b', 'DNS:a, DNS:"b"c', 'DNS:a, DNS:"\\x"', "DNS:a, b", "DNS:a, DNS"]) {
    assert.deepEqual(dns(list), [], list);
  }
  assert.deepEqual(dns(`DNS:ok, DNS:"a\\u0000b", DNS:${"x".repeat(513)}`), ["ok"]);
  assert.equal(dns(Array.from({ length: 64 }, () => "DNS:a").join(", ")).length, 64);
  assert.deepEqual(dns(Array.from({ length: 65 }, () => "DNS:a").join(", ")), []);
  const { commonNames } = certificateNames({ subject: { CN: Array.from({ length: 65 }, () => "a") } });
  assert.deepEqual(commonNames, []);
});

test("certificateNames: any description of a certificate gives names without control characters", () => {
  const list = fc
    .array(fc.constantFrom("DNS:", "URI:", '"', "\\", ", ", "a", "\\u00", "\n", ":"))
    .map((all) => all.join(""));
  fc.assert(
    fc.property(fc.anything(), fc.oneof(list, fc.string(), fc.anything()), (subject, subjectaltname) => {
      const names = Object.values(certificateNames({ subject, subjectaltname })).flat();
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
      for (const name of names) assert.match(name, /^[^\u0000-\u001f\u007f]{1,512}$/);
    }),
  );
});
