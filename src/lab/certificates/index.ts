/**
 * Authorities and certificates of a lab, made by openssl(1): Node can read X.509 but not write it.
 *
 * Owns: keys until they are returned; no key stays on disk. Does not know: what the keys are used for.
 *
 * ```ts
 * const { ca, pairs } = await makeCertificates("lab-ca", { server: { usage: "serverAuth", hosts: ["10.0.0.1"] } });
 * createServer({ ...pairs.server });
 * ```
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describeError, ExpectedError } from "#base/errors";

/** openssl is missing or refuses. */
export class CertificateError extends ExpectedError<"openssl-failed"> {
  override readonly name = "CertificateError";
}

/** The use of a certificate. */
export interface CertificateRequest {
  readonly usage: "serverAuth" | "clientAuth";
  /** The subject's common name. */
  readonly commonName: string;
  /** Names and addresses. */
  readonly hosts: readonly string[];
}

/** A certificate with its key, PEM. */
export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

/** An authority's certificate and those that it signed, PEM. Its own key is gone. */
export interface Certificates<Name extends string> {
  readonly ca: string;
  readonly pairs: Readonly<Record<Name, CertificatePair>>;
}

const run = promisify(execFile);
const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
const TEN_YEARS = ["-days", "3650"];

/** Makes an authority and certificates of it, valid for ten years. Rejects with {@link CertificateError}. */
export async function makeCertificates<const Name extends string>(
  authority: string,
  requests: Readonly<Record<Name, CertificateRequest>>,
): Promise<Certificates<Name>> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-certificates-"));
  const openssl = (...args: string[]): Promise<unknown> => run("openssl", args, { cwd: folder });
  const read = (name: string): Promise<string> => readFile(join(folder, name), "utf8");
  const sign = async (name: string, request: CertificateRequest): Promise<CertificatePair> => {
    await writeFile(join(folder, `${name}.ext`), extensionsOf(request));
    await openssl(
      "req",
      ...NEW_KEY,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
      "-subj",
      `/CN=${request.commonName}`,
    );
    const by = ["-in", `${name}.csr`, "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
    await openssl("x509", "-req", ...by, "-out", `${name}.crt`, ...TEN_YEARS, "-extfile", `${name}.ext`);
    return { cert: await read(`${name}.crt`), key: await read(`${name}.key`) };
  };
  try {
    const subject = ["-subj", `/CN=${authority}`];
    await openssl("req", "-x509", ...NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", ...TEN_YEARS, ...subject);
    const pairs: [string, CertificatePair][] = [];
    // One after the other: they share the file of serial numbers.
    for (const [name, request] of Object.entries<CertificateRequest>(requests))
      pairs.push([name, await sign(name, request)]);
    return { ca: await read("ca.crt"), pairs: Object.fromEntries(pairs) as Record<Name, CertificatePair> };
  } catch (cause) {
    const names = Object.keys(requests).join(", ");
    throw new CertificateError(
      "openssl-failed",
      `cannot make certificates of ${authority} for ${names}: openssl failed; is it installed? ${describeError(cause)}`,
      { cause },
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function extensionsOf({ usage, hosts }: CertificateRequest): string {
  const names = hosts.map((host) => (isIP(host) === 0 ? `DNS:${host}` : `IP:${host}`)).join(",");
  const alternatives = hosts.length === 0 ? "" : `subjectAltName=${names}\n`;
  return `basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=${usage}\n${alternatives}`;
}
