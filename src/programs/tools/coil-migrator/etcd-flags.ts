import { ConfigError, durationFlag, optionalFlag, stringFlag, TIMER_MAX } from "#base/config";
import { readBounded } from "#base/file";
import type { EtcdOptions } from "#features/migrator";

/** Flags that select v1's etcd, with the names that they had in Coil. */
export const etcdFlags = {
  endpoints: stringFlag(
    "etcd-endpoints",
    "http://127.0.0.1:2379",
    "dump: etcd's endpoints, separated by commas; without a scheme https:// if a certificate is given",
    "URLS",
  ),
  prefix: stringFlag("etcd-prefix", "/coil/", "dump: the prefix of the keys of Coil v1", "PREFIX"),
  username: optionalFlag("etcd-username", "dump: etcd's user", "NAME"),
  password: optionalFlag("etcd-password", "dump: password of --etcd-username; default: $COIL_ETCD_PASSWORD", "TEXT"),
  timeout: durationFlag("etcd-timeout", "2s", "dump: the time for one request to one endpoint", {
    min: "1ms",
    max: TIMER_MAX,
  }),
  ca: optionalFlag("etcd-tls-ca", "dump: certificates of the authorities of etcd", "FILE"),
  cert: optionalFlag("etcd-tls-cert", "dump: the client certificate", "FILE"),
  key: optionalFlag("etcd-tls-key", "dump: the key of the client certificate", "FILE"),
};

/** Values of {@link etcdFlags}. */
export interface EtcdValues {
  readonly endpoints: string;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly timeout: number;
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

/** The prefix of the keys, with a slash at its end. Throws `ConfigError`. */
export function prefixOf(text: string): string {
  if (text === "" || text === "/")
    throw new ConfigError("invalid-flags", [
      `--etcd-prefix: "${text}" cannot be the prefix of Coil's keys; an example is /coil/`,
    ]);
  return text.endsWith("/") ? text : `${text}/`;
}

/** The endpoints and credentials of etcd. Throws `ConfigError` naming every fault, and `FileError` for a file that cannot be read. */
export function etcdOptions(values: EtcdValues, env: NodeJS.ProcessEnv): EtcdOptions {
  const faults: string[] = [];
  const hasTls = values.ca !== undefined || values.cert !== undefined;
  const endpoints = values.endpoints
    .split(",")
    .map((text) => text.trim())
    .filter((text) => text !== "")
    .flatMap((text) => {
      const url = URL.parse(text.includes("://") ? text : `${hasTls ? "https" : "http"}://${text}`);
      if (url !== null && ["http:", "https:"].includes(url.protocol) && url.hostname !== "") return [url];
      faults.push(`--etcd-endpoints: "${text}" is not a URL; an example is https://192.0.2.1:2379`);
      return [];
    });
  if (endpoints.length === 0 && faults.length === 0) faults.push("--etcd-endpoints: give at least one endpoint");
  if ((values.cert === undefined) !== (values.key === undefined))
    faults.push("--etcd-tls-cert and --etcd-tls-key: give both or neither");
  if (hasTls && endpoints.some(({ protocol }) => protocol === "http:"))
    faults.push("--etcd-endpoints: an http:// endpoint uses no certificate; write https://, or leave out --etcd-tls-*");
  const password = values.password ?? env["COIL_ETCD_PASSWORD"];
  if (values.username !== undefined && password === undefined)
    faults.push("--etcd-username needs --etcd-password, or $COIL_ETCD_PASSWORD");
  if (values.username === undefined && values.password !== undefined)
    faults.push("--etcd-password needs --etcd-username");
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  const read = (path: string | undefined): string | undefined => (path === undefined ? undefined : readBounded(path));
  return {
    endpoints,
    tls: { ca: read(values.ca), cert: read(values.cert), key: read(values.key) },
    user: values.username === undefined ? undefined : { name: values.username, password: password ?? "" },
    timeoutMs: values.timeout,
  };
}
