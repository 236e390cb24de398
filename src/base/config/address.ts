import { ConfigError } from "./errors.ts";

/** An address to listen on. If `host` is absent, the server listens on every address of both families. */
export interface ListenAddress {
  readonly host?: string;
  /** The port; with 0 the kernel chooses one. */
  readonly port: number;
}

/** Parses `:9384`, `127.0.0.1:9384`, `[::]:9384`, `localhost:0`. Throws {@link ConfigError}. */
export function parseListenAddress(text: string): ListenAddress {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]*)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65535) {
    throw new ConfigError("invalid-value", [`"${text}" is not a listen address; examples are :9384 and [::1]:9384`]);
  }
  const host = match[1] ?? match[2] ?? "";
  return host === "" ? { port } : { host, port };
}

/** The text that {@link parseListenAddress} reads back. */
export function formatListenAddress(address: ListenAddress): string {
  const { host = "", port } = address;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
