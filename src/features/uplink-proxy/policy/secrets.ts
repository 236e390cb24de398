import { X509Certificate } from "node:crypto";
import { chmod, mkdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { createSecureContext, type SecureContext } from "node:tls";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { replaceFile } from "#base/file";
import type { IpAddress } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { repeat } from "#base/reconcile";
import { deriveIdentity, freshIdentity, type Identity } from "./identity.ts";

/** Interval at which the secrets are checked, milliseconds (docs/spec/uplink-proxy.md#9.1.1). */
const RECHECK_MS = 60_000;
/** The time for which a replaced token is still accepted, milliseconds (docs/spec/uplink-proxy.md#12). */
const OLD_TOKEN_MS = 600_000;
const FILES = { token: "token", cert: "ca.pem", key: "key.pem" } as const;
/** Marks the files as those of the cluster: written before them, removed after them. */
const MARKER = "cluster-wide";

/** The permissions of the group and of other users. */
const OTHERS = 0o077;

/** The state of the secret that this node shares with others. `unknown`: the source could not be read; existing files stay. */
export type ClusterSecret =
  | { readonly kind: "standalone" | "unknown" }
  | { readonly kind: "shared"; readonly secret: Uint8Array };

/** Dependencies of the secrets. */
export interface SecretsDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Called at the start and once a minute. */
  readonly clusterSecret: () => Promise<ClusterSecret>;
}

/** The directory of the secrets and the address of the certificate. */
export interface SecretsOptions {
  /** The directory of the secrets; it is created with mode 0700. */
  readonly dir: string;
  /** The address of the listener for pods. */
  readonly address: IpAddress;
}

/** The change of the files, see {@link planSecrets}. */
export type SecretsPlan = "keep" | "derive" | "generate" | "wipe-and-generate";

/** The content of the directory. */
export interface StoredSecrets {
  /** Absent if one of the files is missing or cannot be used. */
  readonly identity: Identity | undefined;
  readonly isClusterWide: boolean;
}

/** Pure. `derived` is the identity that the cluster's secret gives, if there is one. */
export function planSecrets(
  stored: StoredSecrets,
  kind: ClusterSecret["kind"],
  derived: Identity | undefined,
): SecretsPlan {
  const { identity, isClusterWide } = stored;
  if (kind === "shared") {
    const isSame =
      identity?.token === derived?.token && identity?.cert === derived?.cert && identity?.key === derived?.key;
    return isClusterWide && isSame ? "keep" : "derive";
  }
  if (kind === "standalone" && isClusterWide) return "wipe-and-generate";
  // A node that does not know whether it has a cluster secret does not generate a secret, because the cluster would not accept it.
  if (identity !== undefined || kind === "unknown") return "keep";
  return "generate";
}

/** Token and certificate of the pod listener: generated, kept on disk, shared by a cluster, replaced (docs/spec/uplink-proxy.md#9.1). */
export class Secrets {
  readonly #deps: SecretsDeps;
  readonly #options: SecretsOptions;
  readonly #repeats = new Repeats();
  #identity: Identity | undefined;
  #context: SecureContext | undefined;
  /** The replaced tokens, with the monotonic time until which they are accepted. */
  #old: readonly { readonly token: string; readonly until: number }[] = [];
  /** Called when token or certificate have changed. */
  onChange: (() => void) | undefined;

  constructor(deps: SecretsDeps, options: SecretsOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The tokens that are accepted now, the present one first; `undefined` until there is a token. */
  get tokens(): readonly string[] | undefined {
    if (this.#identity === undefined) return undefined;
    const now = this.#deps.clock.monotonic();
    return [this.#identity.token, ...this.#old.filter(({ until }) => until > now).map(({ token }) => token)];
  }

  /** The TLS context; `undefined` until there is a certificate. */
  get secureContext(): SecureContext | undefined {
    return this.#context;
  }

  /** PEM, for clients to trust. */
  get certificate(): string | undefined {
    return this.#identity?.cert;
  }

  /** Keeps the secrets up to date until the signal aborts. Errors of the disk are logged, and it is tried again. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await repeat(() => this.sync(), { signal, clock: this.#deps.clock, everyMs: RECHECK_MS });
  }

  /** One pass. Never rejects for an error of the disk or the cluster. */
  async sync(): Promise<void> {
    const { log, clusterSecret } = this.#deps;
    const { dir, address } = this.#options;
    try {
      const cluster = await clusterSecret();
      const derived = cluster.kind === "shared" ? deriveIdentity(cluster.secret, address) : undefined;
      const opened = await tighten(dir);
      if (opened.length > 0) log.warn("removed the permissions of other users on secret files", { dir, files: opened });
      const stored = await readStored(dir);
      const plan = planSecrets(stored, cluster.kind, derived);
      const wanted = plan === "keep" ? stored.identity : (derived ?? freshIdentity(address));
      if (plan !== "keep" && wanted !== undefined) await store(dir, wanted, plan);
      if (plan !== "keep") log.info("wrote the secrets of the listener for pods", { plan });
      if (wanted !== undefined) this.#adopt(wanted);
      this.#repeats.forget("kept");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
      const text = describeError(error);
      if (this.#repeats.isNew("kept", text)) {
        log.warn("cannot write the secrets of the listener for pods", { dir, error: text });
      }
    }
  }

  #adopt(next: Identity): void {
    const previous = this.#identity;
    if (previous?.token === next.token && previous.cert === next.cert && previous.key === next.key) return;
    const now = this.#deps.clock.monotonic();
    const replaced = previous === undefined || previous.token === next.token ? [] : [previous.token];
    const until = now + OLD_TOKEN_MS;
    this.#old = [...replaced.map((token) => ({ token, until })), ...this.#old.filter((old) => old.until > now)];
    this.#identity = next;
    this.#context = createSecureContext({ cert: next.cert, key: next.key, minVersion: "TLSv1.2" });
    this.onChange?.();
  }
}

async function readStored(dir: string): Promise<StoredSecrets> {
  const [token, cert, key, marker] = await Promise.all(
    [FILES.token, FILES.cert, FILES.key, MARKER].map((name) => readIfThere(join(dir, name))),
  );
  return { identity: usable(token?.trim(), cert, key), isClusterWide: marker !== undefined };
}

/** Damaged files count as missing. */
function usable(token: string | undefined, cert: string | undefined, key: string | undefined): Identity | undefined {
  if (token === undefined || !/^[0-9a-f]{64}$/.test(token) || cert === undefined || key === undefined) return undefined;
  try {
    createSecureContext({ cert, key });
    return new X509Certificate(cert).ca ? { token, cert, key } : undefined;
  } catch (error) {
    // OpenSSL's errors for unreadable input have a code.
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    return undefined;
  }
}

/** Removes the permissions of group and others on the folder and its secrets; returns the names that had any. */
async function tighten(dir: string): Promise<string[]> {
  const opened: string[] = [];
  for (const name of ["", ...Object.values(FILES)]) {
    const path = join(dir, name);
    const { mode } = (await statIfThere(path)) ?? { mode: 0 };
    if ((mode & OTHERS) === 0) continue;
    await chmod(path, mode & ~OTHERS & 0o777);
    opened.push(name === "" ? "." : name);
  }
  return opened;
}

async function statIfThere(path: string): Promise<{ readonly mode: number } | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Writes the files in an order in which secrets of a cluster never exist without the marker. */
async function store(dir: string, { token, cert, key }: Identity, plan: SecretsPlan): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  if (plan === "derive") replaceFile(join(dir, MARKER), "1\n", { mode: 0o600 });
  if (plan === "wipe-and-generate") {
    for (const name of Object.values(FILES)) await rm(join(dir, name), { force: true });
    await rm(join(dir, MARKER), { force: true });
  }
  replaceFile(join(dir, FILES.key), key, { mode: 0o600 });
  replaceFile(join(dir, FILES.cert), cert, { mode: 0o600 });
  replaceFile(join(dir, FILES.token), `${token}\n`, { mode: 0o600 });
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
