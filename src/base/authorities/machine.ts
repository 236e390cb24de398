import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { rootCertificates } from "node:tls";
import { keptVariable } from "#base/environment";
import { authoritiesOf, type Trust } from "./bundle.ts";

/** A Linux machine has its authorities in the first of these files, and in all files of these folders (`root_linux.go` of Go's crypto/x509). */
export const MACHINE_STORE = {
  files: [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
  ],
  folders: ["/etc/ssl/certs", "/etc/pki/tls/certs"],
} as const;

/** The most that is read of a store, in bytes. Debian's has 220 KiB. */
const MAX_STORE_BYTES = 8 * 1024 * 1024;

let known: Trust | undefined;

/**
 * The trust in the authorities of this machine, for a server for which none are configured. Read once. The caller's SSL_CERT_FILE and SSL_CERT_DIR take the place of the machine's files and folders, as in Go. Where a machine has none, as an image without any, those that Node brings.
 */
export function machineTrust(): Trust {
  known ??= readStore(storeOf(process.env));
  return known;
}

/** Pure: the files and folders by the environment. */
export function storeOf(env: Readonly<Record<string, string | undefined>>): {
  readonly files: readonly string[];
  readonly folders: readonly string[];
} {
  const file = keptVariable(env, "SSL_CERT_FILE") ?? "";
  const folder = keptVariable(env, "SSL_CERT_DIR") ?? "";
  return {
    files: file === "" ? MACHINE_STORE.files : [file],
    folders: folder === "" ? MACHINE_STORE.folders : folder.split(":").filter((one) => one !== ""),
  };
}

/** Reads a store. What cannot be read is passed over, as in Go. */
export function readStore(store: { readonly files: readonly string[]; readonly folders: readonly string[] }): Trust {
  const all = new Set<string>();
  let left = MAX_STORE_BYTES;
  const read = (path: string): boolean => {
    const text = textOf(path);
    left -= text.length;
    const found = left < 0 ? [] : authoritiesOf(text);
    for (const one of found) all.add(one);
    return found.length > 0;
  };
  store.files.some(read);
  for (const folder of store.folders) for (const name of namesIn(folder)) read(join(folder, name));
  return { ca: all.size > 0 ? [...all] : rootCertificates, allowPartialTrustChain: true };
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** The files of a folder without names by which a file of the same folder is found again, as those of `openssl rehash`. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => !entry.isSymbolicLink() || readlinkSync(join(folder, entry.name)).includes("/"))
      .map(({ name }) => name)
      .sort();
  } catch {
    return [];
  }
}
