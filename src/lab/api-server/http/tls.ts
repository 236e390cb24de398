import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { ApiError } from "../errors.ts";

/** A server's certificate and key with the CA that clients are to trust, all PEM. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

const run = promisify(execFile);

/**
 * Makes a CA and a server certificate for the given names and addresses, valid for ten years, with openssl(1): Node can read
 * X.509 but not write it. Throws ApiError when openssl is missing or refuses.
 */
export async function selfSignedCertificate(hosts: readonly string[]): Promise<ServerCertificate> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-api-tls-"));
  try {
    const names = hosts.map((host) => (isIP(host) === 0 ? `DNS:${host}` : `IP:${host}`)).join(",");
    const extensions = `basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\nsubjectAltName=${names}\n`;
    await writeFile(join(folder, "ext"), extensions);
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const openssl = (...args: string[]): Promise<unknown> => run("openssl", args, { cwd: folder });
    await openssl(
      "req",
      "-x509",
      ...key,
      "-keyout",
      "ca.key",
      "-out",
      "ca.crt",
      "-days",
      "3650",
      "-subj",
      "/CN=isthmus-lab-ca",
    );
    await openssl("req", ...key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=isthmus-lab-api");
    const sign = ["-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
    await openssl("x509", "-req", ...sign, "-out", "server.crt", "-days", "3650", "-extfile", "ext");
    const read = (name: string): Promise<string> => readFile(join(folder, name), "utf8");
    return { cert: await read("server.crt"), key: await read("server.key"), ca: await read("ca.crt") };
  } catch (cause) {
    throw new ApiError(
      "InternalError",
      `cannot make a certificate for ${hosts.join(", ")}: openssl failed; is it installed?`,
      { cause },
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
