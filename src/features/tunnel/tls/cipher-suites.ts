import type { SecureVersion } from "node:tls";
import { ConfigError } from "#base/config";

/** The suites that Go deems secure: IANA name to OpenSSL name. */
const SECURE: Readonly<Record<string, string>> = {
  TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: "ECDHE-ECDSA-AES128-GCM-SHA256",
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "ECDHE-RSA-AES128-GCM-SHA256",
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: "ECDHE-ECDSA-AES256-GCM-SHA384",
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: "ECDHE-RSA-AES256-GCM-SHA384",
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-ECDSA-CHACHA20-POLY1305",
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305",
};

/** Suites that Go deems secure too, but that are offered only if the configuration names them: CBC with SHA-1. */
const ON_REQUEST: Readonly<Record<string, string>> = {
  TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: "ECDHE-ECDSA-AES128-SHA",
  TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: "ECDHE-RSA-AES128-SHA",
  TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: "ECDHE-ECDSA-AES256-SHA",
  TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: "ECDHE-RSA-AES256-SHA",
};

/** Older names that Go accepts besides the registered ones. */
const ALIASES: Readonly<Record<string, string>> = {
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305: "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305: "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
};

/** Suites of TLS 1.3, which are always on (RFC 8446 B.4). */
const TLS13 = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] as const;

/** The values of `--tls-min-version`. */
const VERSIONS: Readonly<Record<string, SecureVersion>> = {
  "": "TLSv1.2",
  VersionTLS10: "TLSv1",
  VersionTLS11: "TLSv1.1",
  VersionTLS12: "TLSv1.2",
  VersionTLS13: "TLSv1.3",
};

/**
 * OpenSSL's cipher list for IANA names; the secure suites if none is named. Names of TLS 1.3 suites are accepted and change
 * nothing. Throws `ConfigError` with one sentence for each name that is unknown or not secure (docs/spec/tunnel.md#10).
 */
export function opensslCiphers(names: readonly string[]): string {
  const known = new Map(Object.entries({ ...SECURE, ...ON_REQUEST }));
  const faults: string[] = [];
  const chosen: string[] = [];
  for (const name of names) {
    if (TLS13.some((one) => one === name)) continue;
    const suite = known.get(Object.hasOwn(ALIASES, name) ? (ALIASES[name] ?? name) : name);
    if (suite !== undefined) chosen.push(suite);
    else faults.push(`"${name}" is unknown or not secure; use ${Object.keys(SECURE).join(", ")}`);
  }
  if (faults.length > 0) throw new ConfigError("invalid-value", faults);
  const old = chosen.length > 0 ? chosen : Object.values(SECURE);
  return [...TLS13, ...old].join(":");
}

/** Reads `--tls-min-version`: empty for 1.2. Throws `ConfigError`. */
export function parseTlsVersion(text: string): SecureVersion {
  const version = Object.hasOwn(VERSIONS, text) ? VERSIONS[text] : undefined;
  if (version !== undefined) return version;
  const allowed = Object.keys(VERSIONS).filter((name) => name !== "");
  throw new ConfigError("invalid-value", [`"${text}" is not a TLS version: use ${allowed.join(", ")}`]);
}

/** Returns true if a version is insecure: before 1.2. */
export function isOldTls(version: SecureVersion): boolean {
  return version === "TLSv1" || version === "TLSv1.1";
}
