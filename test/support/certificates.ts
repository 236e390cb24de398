/**
 * Authorities and certificates for tests of TLS, made by openssl(1), which every machine of the project has.
 *
 * ```ts
 * const { ca, pairs } = await makeCertificates("cluster-a", { server: ["a.example", "127.0.0.1"], agent: [] });
 * createServer({ ...pairs.server, ca, requestCert: true });
 * ```
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** A certificate with its key, PEM. */
export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

/** An authority's certificate and those that it signed, PEM. */
export interface Certificates<Name extends string> {
  readonly ca: string;
  readonly pairs: Readonly<Record<Name, CertificatePair>>;
}

/** Special properties of a certificate. */
export interface CertificateTraits {
  /** It was valid until yesterday. */
  readonly expired?: boolean;
  /** It may be used for this alone (extendedKeyUsage). */
  readonly usage?: "serverAuth" | "clientAuth";
}

const run = promisify(execFile);
const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/** Makes an authority and, by name, certificates of it for hosts and addresses, valid for servers and for clients by default. */
export async function makeCertificates<const Name extends string>(
  authority: string,
  hostsByName: Readonly<Record<Name, readonly string[]>>,
  traits: Partial<Readonly<Record<Name, CertificateTraits>>> = {},
): Promise<Certificates<Name>> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-certificates-"));
  const openssl = (...args: string[]): Promise<unknown> => run("openssl", args, { cwd: folder });
  const read = (name: string): Promise<string> => readFile(join(folder, name), "utf8");
  try {
    const subject = ["-subj", `/CN=${authority}`];
    await openssl("req", "-x509", ...NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", ...subject);
    const made = Object.entries<readonly string[]>(hostsByName).map(async ([name, hosts]) => {
      const names = hosts.map((host) => (isIP(host) === 0 ? `DNS:${host}` : `IP:${host}`)).join(",");
      const alternatives = hosts.length === 0 ? "" : `subjectAltName=${names}\n`;
      const { expired = false, usage }: CertificateTraits = traits[name as Name] ?? {};
      const extended = usage === undefined ? "" : `extendedKeyUsage=${usage}\n`;
      await writeFile(join(folder, `${name}.ext`), `basicConstraints=CA:FALSE\n${alternatives}${extended}`);
      await openssl("req", ...NEW_KEY, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
      const sign = [
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-set_serial",
        String(serialOf(name)),
        "-days",
        expired ? "-1" : "30",
      ];
      await openssl("x509", "-req", "-in", `${name}.csr`, "-out", `${name}.crt`, "-extfile", `${name}.ext`, ...sign);
      return [name, { cert: await read(`${name}.crt`), key: await read(`${name}.key`) }] as const;
    });
    const pairs = Object.fromEntries(await Promise.all(made)) as Record<Name, CertificatePair>;
    return { ca: await read("ca.crt"), pairs };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Unlike for unlike names; openssl's own serial file could not be shared by several that run at once. */
function serialOf(name: string): number {
  return Buffer.from(name).reduce((hash, byte) => (hash * 31 + byte) % 2 ** 31, 7);
}
