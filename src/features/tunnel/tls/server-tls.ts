import type { Server, TlsOptions } from "node:tls";
import type { Clock } from "#base/clock";
import { isOldTls, opensslCiphers, parseTlsVersion } from "./cipher-suites.ts";
import { TlsFiles, type TlsPaths } from "./tls-files.ts";

/** The time that a handshake may take, in milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 30_000;

export interface ServerTlsOptions {
  readonly paths: TlsPaths;
  /** Cipher suites by IANA name; empty: the secure suites. */
  readonly cipherSuites: readonly string[];
  /** The oldest TLS version, `VersionTLS10` to `VersionTLS13`; empty: 1.2. */
  readonly minVersion: string;
  /** The accepted ALPN protocols; a client that offers only others is refused. */
  readonly alpn: readonly string[];
}

/** The options of a TLS server, which follow its certificate files (docs/spec/tunnel.md#10). */
export interface ServerTls {
  readonly options: TlsOptions;
  /** Makes each new handshake of the server, which was made with {@link options}, use the present files. */
  follow(server: Server): void;
}

/** Makes the options. Throws `ConfigError` for wrong suites and versions, `TlsFilesError` for the files. */
export function serverTls(
  options: ServerTlsOptions,
  deps: { readonly clock: Clock; readonly onBroken?: (why: string) => void; readonly onReloaded?: () => void },
): ServerTls {
  const minVersion = parseTlsVersion(options.minVersion);
  const ciphers = opensslCiphers(options.cipherSuites);
  const files = new TlsFiles(options.paths, deps);
  const fixed = {
    minVersion,
    // Versions before 1.2 sign with SHA-1, which OpenSSL allows at its lowest level only.
    ciphers: isOldTls(minVersion) ? `${ciphers}:@SECLEVEL=0` : ciphers,
    honorCipherOrder: true,
  };
  const asksClients = options.paths.clientCa !== undefined;
  return {
    options: {
      ...fixed,
      ...files.material,
      requestCert: asksClients,
      rejectUnauthorized: asksClients,
      ALPNProtocols: [...options.alpn],
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    },
    follow(server) {
      // This listener runs before the server's own one, which begins the handshake.
      server.prependListener("connection", () => {
        if (!files.refresh()) return;
        server.setSecureContext({ ...fixed, ...files.material });
        deps.onReloaded?.();
      });
    },
  };
}
