import type { AbortOptions } from "#base/async";

/** The current credentials, ours and the server's authorities. PEM texts. */
export interface KubeCredentials {
  readonly headers: Readonly<Record<string, string>>;
  /** Certificates that may sign the server's. Absent: those of the system. */
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** The address of an API server and the credentials for it. */
export interface KubeConnection {
  /** Scheme, host, port and perhaps a path prefix. */
  readonly server: URL;
  /** The context's namespace, for programs that work in one. */
  readonly namespace: string;
  /** The source of the connection, for messages. */
  readonly source: string;
  /** The name that the server's certificate must have, when not the URL's host. */
  readonly tlsServerName: string | undefined;
  readonly insecureSkipTlsVerify: boolean;
  /** The current credentials; files are read again and plugins run again as they expire. Rejects with `KubeConfigError`. */
  credentials(options?: AbortOptions): Promise<KubeCredentials>;
  /** The server refused them (401): the next call of `credentials` must not use a cache. */
  expire(): void;
}

/** A connection with credentials that never change. */
export function staticConnection(init: {
  readonly server: string | URL;
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
    namespace: init.namespace ?? "default",
    source: init.source ?? "static connection",
    tlsServerName: init.tlsServerName,
    insecureSkipTlsVerify: false,
    credentials: async () => ({ headers, ca: init.ca, cert: init.cert, key: init.key }),
    expire: () => undefined,
  };
}
