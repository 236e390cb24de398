import type { AbortOptions } from "#base/async";
import type { HttpProxy } from "#base/http-proxy";

/** Our current credentials, and the certificate authorities of the server. Certificates and keys are PEM texts. */
export interface KubeCredentials {
  /** A header with several values has a list. */
  readonly headers: Readonly<Record<string, string | string[]>> & { readonly authorization?: string };
  /** Authorities that may sign the server's certificate. Absent: those of this machine. */
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** The address of an API server and the credentials for it. */
export interface KubeConnection {
  /** The server's scheme, host, port and, optionally, a path prefix. */
  readonly server: URL;
  /** Further servers of the same cluster, with the same scheme and prefix: they are used where the first one is not reached. Absent: none. */
  readonly others?: readonly URL[] | undefined;
  /** The namespace of the context, for programs that work in one namespace. */
  readonly namespace: string;
  /** The source of the connection, for messages. */
  readonly source: string;
  /** The name that the server's certificate must have, if it is not the host of the URL. */
  readonly tlsServerName: string | undefined;
  readonly insecureSkipTlsVerify: boolean;
  /** The proxy through which a server is reached. Absent, or `undefined`: there is none. */
  readonly proxyTo?: ((server: URL) => HttpProxy | undefined) | undefined;
  /** The current credentials; files are read again and plugins run again as they expire. Rejects with `KubeConfigError`. */
  credentials(options?: AbortOptions): Promise<KubeCredentials>;
  /** Call this when the server refused the credentials (401), or they cannot be used: the next call of `credentials` does not use a cache. */
  expire(): void;
}

/** A connection with credentials that never change. */
export function staticConnection(init: {
  readonly server: string | URL;
  readonly others?: readonly URL[];
  readonly token?: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly namespace?: string;
  readonly source?: string;
  readonly tlsServerName?: string;
}): KubeConnection {
  const headers = init.token === undefined ? {} : { authorization: `Bearer ${init.token}` };
  return {
    server: new URL(init.server),
    others: init.others,
    namespace: init.namespace ?? "default",
    source: init.source ?? "static connection",
    tlsServerName: init.tlsServerName,
    insecureSkipTlsVerify: false,
    credentials: async () => ({ headers, ca: init.ca, cert: init.cert, key: init.key }),
    expire: () => undefined,
  };
}
