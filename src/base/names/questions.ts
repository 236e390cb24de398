import { Resolver } from "node:dns";
import type { Clock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { NamesError } from "./errors.ts";

/** After this time without an answer the next server is queried too, in milliseconds. */
const STEP_MS = 1000;
/** The time for which a server's answer is accepted, milliseconds, even if other servers were queried after it. */
const ANSWER_MS = 8000;
/** The time that the answer for the second family may take after the first has answered (RFC 8305 section 3), in milliseconds. */
const OTHER_FAMILY_MS = 50;
/** The maximum number of addresses of one name; further addresses are ignored. */
const MAX_ADDRESSES = 64;

export interface QuestionOptions {
  /** The servers in the order of queries. A server may be in the list several times. */
  readonly servers: readonly string[];
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

type Verdict = readonly IpAddress[] | "not-found" | undefined;

/**
 * Asks for both families of one exact name. It does not call getaddrinfo(3), which has four threads for the whole process: a server that
 * does not answer would delay all other names. Each server has a channel of its own (c-ares) with one long try, so that late
 * answers count. Rejects with {@link NamesError}, or the signal's reason; no query continues after the promise settles.
 */
export async function askServers(
  name: string,
  { servers, clock, signal }: QuestionOptions,
): Promise<readonly IpAddress[]> {
  signal.throwIfAborted();
  const resolvers: Resolver[] = [];
  const done = Promise.withResolvers<void>();
  const found: Record<IpFamily, Verdict> = { 4: undefined, 6: undefined };
  const cancels: (() => void)[] = [];
  let [next, open] = [0, 0];
  let lastCode = "";
  const take = (family: IpFamily, error: NodeJS.ErrnoException | null, addresses: readonly string[]): void => {
    open -= 1;
    const code = error?.code ?? "";
    if (error === null) found[family] ??= addresses.flatMap((text) => IpAddress.tryParse(text) ?? []);
    else if (code === "ENOTFOUND" || code === "ENODATA") found[family] ??= "not-found";
    else lastCode = code;
    if (found[4] !== undefined && found[6] !== undefined) done.resolve();
    else if (Array.isArray(found[4] ?? found[6])) cancels.push(clock.after(OTHER_FAMILY_MS, () => done.resolve()));
    else if (open === 0) step();
  };
  const step = (): void => {
    const server = servers[next];
    next += 1;
    if (server === undefined) {
      if (open === 0) done.resolve();
      return;
    }
    const resolver = new Resolver({ timeout: ANSWER_MS, tries: 1 });
    resolvers.push(resolver);
    resolver.setServers([server]);
    open += 2;
    resolver.resolve4(name, (error, addresses) => take(4, error, addresses));
    resolver.resolve6(name, (error, addresses) => take(6, error, addresses));
    cancels.push(clock.after(STEP_MS, step));
  };
  const onAbort = (): void => done.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    step();
    await done.promise;
    return addressesOf(found, lastCode);
  } finally {
    signal.removeEventListener("abort", onAbort);
    for (const cancel of cancels) cancel();
    next = servers.length;
    for (const resolver of resolvers) resolver.cancel();
  }
}

function addressesOf(found: Readonly<Record<IpFamily, Verdict>>, lastCode: string): readonly IpAddress[] {
  const verdicts = [found[4], found[6]];
  const addresses = verdicts.flatMap((verdict) => (Array.isArray(verdict) ? verdict : []) as readonly IpAddress[]);
  if (addresses.length > 0) return addresses.slice(0, MAX_ADDRESSES);
  if (verdicts.every((verdict) => verdict !== undefined)) throw new NamesError("not-found", "no such host");
  throw new NamesError("unavailable", `no DNS server has given an answer${lastCode === "" ? "" : ` (${lastCode})`}`);
}
