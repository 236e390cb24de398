import { hostname, networkInterfaces } from "node:os";
import { unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { NamesError } from "./errors.ts";
import { FileView } from "./file-view.ts";
import { HostsFile } from "./hosts.ts";
import { inOrder } from "./order.ts";
import { askServers } from "./questions.ts";
import { candidatesOf, parseResolvConf, type ResolvConf } from "./resolv-conf.ts";

/** The maximum length of a name (RFC 1035 section 2.3.4). */
const MAX_NAME_LENGTH = 253;
/** The maximum number of concurrent questions; further ones are refused at once. Each holds a few descriptors until it is answered. */
const MAX_PENDING_NAMES = 256;

/** Resolves names. */
export interface Names {
  /** At least one address, in the order in which they are to be tried. Rejects with {@link NamesError}, or the signal's reason. */
  resolve(name: string, options: { readonly signal: AbortSignal }): Promise<readonly IpAddress[]>;
}

/** Resolves names as the system does: by its hosts file, then by the servers and search list of its resolv.conf. Caches no answers. */
export class SystemNames implements Names {
  readonly #clock: Clock;
  readonly #hosts: HostsFile;
  readonly #conf: FileView<ResolvConf>;
  readonly #pending = new Map<string, Question>();

  constructor(
    deps: { readonly clock: Clock },
    {
      hostsPath = "/etc/hosts",
      resolvConfPath = "/etc/resolv.conf",
    }: { readonly hostsPath?: string; readonly resolvConfPath?: string } = {},
  ) {
    this.#clock = deps.clock;
    this.#hosts = new HostsFile(hostsPath, deps.clock);
    const parse = (text: string): ResolvConf => parseResolvConf(text, hostname());
    this.#conf = new FileView(resolvConfPath, { clock: deps.clock, parse, absent: parse("") });
  }

  async resolve(name: string, { signal }: { readonly signal: AbortSignal }): Promise<readonly IpAddress[]> {
    signal.throwIfAborted();
    const literal = IpAddress.tryParse(name);
    if (literal !== undefined) return [literal];
    const lower = name.toLowerCase();
    const bare = lower.replace(/\.$/, "");
    if (bare === "" || bare.length > MAX_NAME_LENGTH) throw new NamesError("not-found", "no such host");
    const known = await this.#hosts.lookup(bare);
    if (known.length > 0) return inOrder(known, ownAddresses());
    // These names are never sent to a server (RFC 6761 sections 6.3 and 6.4).
    if (bare === "invalid" || bare.endsWith(".invalid")) throw new NamesError("not-found", "no such host");
    if (bare === "localhost" || bare.endsWith(".localhost")) return LOCALHOST;
    const question = this.#ask(lower);
    question.waiting += 1;
    try {
      return await unlessAborted(question.answer, { signal });
    } finally {
      question.waiting -= 1;
      if (question.waiting === 0) this.#forget(lower, question);
    }
  }

  /** The question of a name, which all concurrent callers share. */
  #ask(name: string): Question {
    const asked = this.#pending.get(name);
    if (asked !== undefined) return asked;
    if (this.#pending.size >= MAX_PENDING_NAMES) {
      throw new NamesError("unavailable", `${MAX_PENDING_NAMES} names are being resolved already`);
    }
    const stop = new AbortController();
    const question: Question = { answer: this.#askAll(name, stop.signal), stop, waiting: 0 };
    this.#pending.set(name, question);
    return question;
  }

  /** Removes a question that no caller waits for, because it was answered or all callers have aborted. */
  #forget(name: string, question: Question): void {
    if (this.#pending.get(name) === question) this.#pending.delete(name);
    // All callers have aborted.
    question.answer.catch(() => undefined);
    question.stop.abort(new NamesError("unavailable", "no caller waits for the answer any more"));
  }

  async #askAll(name: string, signal: AbortSignal): Promise<readonly IpAddress[]> {
    const conf = await this.#conf.get();
    const servers = Array.from({ length: conf.attempts }, () => conf.servers).flat();
    for (const candidate of candidatesOf(name, conf)) {
      if (candidate.length > MAX_NAME_LENGTH) continue;
      try {
        return inOrder(await askServers(candidate, { servers, clock: this.#clock, signal }), ownAddresses());
      } catch (error) {
        if (!(error instanceof NamesError) || error.code !== "not-found") throw error;
      }
    }
    throw new NamesError("not-found", "no such host");
  }
}

/** A question that waits for an answer. */
interface Question {
  readonly answer: Promise<readonly IpAddress[]>;
  readonly stop: AbortController;
  /** The number of callers that wait for the answer. */
  waiting: number;
}

const LOCALHOST: readonly IpAddress[] = [IpAddress.parse("127.0.0.1"), IpAddress.parse("::1")];

function ownAddresses(): readonly IpAddress[] {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.flatMap(({ address }) => IpAddress.tryParse(address) ?? []);
}
