import { assertNever } from "#base/errors";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { ByteString, Verdict } from "#kernel/nft-elements";
import type { Protocol } from "../model/index.ts";
import { addressBytes, addressKey, portBytes, slotBytes } from "../plan/index.ts";
import { type Action, type KeyPart, type Match, printRule, type Rule, SETS } from "../rules/index.ts";
import type { Outcome, Packet, Step, Trace, World } from "./types.ts";

/** The bit is printed by nobody; any will do. */
const MARK = 0x4000;
const LOOPBACK = { 4: Cidr.parse("127.0.0.0/8"), 6: Cidr.parse("::1/128") } as const;

/** Base chains in the order of their priorities, by the way that a packet takes. */
const PREROUTING = ["filter-prerouting", "nat-prerouting"];
const OUTPUT = ["filter-output-pre-dnat", "nat-output", "filter-output"];
const FORWARD = ["filter-forward"];
const POSTROUTING = ["affinity-postrouting", "nat-postrouting"];

/**
 * Walks the first packet of a connection through the rules as a kernel does, and says where it ends (spec service-proxy 3.1). Pure.
 * What is not translated is delivered as it is: where other tables and routes take it is not ours to say.
 */
export function trace(packet: Packet, world: World): Trace {
  const walk = new Walk(packet, world);
  const outcome = walk.run();
  return { outcome, steps: walk.steps };
}

type Verdictum = "accept" | "drop" | "reject";

class Walk {
  readonly #world: World;
  readonly #packet: Packet;
  readonly #family: IpFamily;
  readonly steps: Step[] = [];
  #destination: IpAddress;
  #port: number;
  #isTranslated = false;
  #isMarked = false;
  #isMasqueraded = false;

  constructor(packet: Packet, world: World) {
    this.#packet = packet;
    this.#world = world;
    this.#family = packet.destination.family;
    this.#destination = packet.destination;
    this.#port = packet.port;
  }

  run(): Outcome {
    const isOwn = this.#packet.inputInterface === undefined;
    const isForUs = (): boolean => this.#isLocal(this.#destination);
    const before = this.#through(isOwn ? OUTPUT : PREROUTING);
    if (before !== undefined) return before;
    if (!isOwn && !isForUs()) {
      const forwarded = this.#through(FORWARD);
      if (forwarded !== undefined) return forwarded;
    }
    if (isOwn || !isForUs()) {
      const after = this.#through(POSTROUTING);
      if (after !== undefined) return after;
    }
    return {
      kind: "delivered",
      destination: this.#destination,
      port: this.#port,
      isTranslated: this.#isTranslated,
      isMasqueraded: this.#isMasqueraded,
    };
  }

  #through(chains: readonly string[]): Outcome | undefined {
    for (const name of chains) {
      const verdict = this.#chain(name);
      if (verdict === "drop") return { kind: "dropped" };
      if (verdict === "reject") return { kind: "rejected" };
    }
    return undefined;
  }

  /** `undefined`: the end of the chain was reached. */
  #chain(name: string): Verdictum | undefined {
    const chain = this.#world.chains.get(name);
    if (chain === undefined) throw new Error(`there is no chain ${name}`);
    for (const rule of chain.rules) {
      if (!rule.matches.every((match) => this.#matches(match))) continue;
      const verdict = this.#actions(name, rule);
      if (verdict === "return") return undefined;
      if (verdict !== undefined) return verdict;
    }
    return undefined;
  }

  #actions(chain: string, rule: Rule): Verdictum | "return" | undefined {
    for (const action of rule.actions) {
      const done = this.#act(action, () =>
        this.steps.push({ chain, text: printRule(rule, { family: this.#family, mark: MARK }) }),
      );
      if (done !== undefined) return done;
    }
    return undefined;
  }

  #act(action: Action, applied: () => void): Verdictum | "return" | undefined {
    switch (action.kind) {
      case "goto":
      case "jump":
        applied();
        return this.#enter(action);
      case "map": {
        const found = this.#world.lookup(action.map, this.#key(action.key));
        if (typeof found !== "object") return undefined;
        applied();
        if (found.kind === "goto" || found.kind === "jump") return this.#enter(found);
        return found.kind;
      }
      case "dnat": {
        const found = this.#world.lookup(action.map, this.#key(action.key));
        if (typeof found !== "string") return undefined;
        applied();
        this.#translate(found);
        return "accept";
      }
      case "mark":
      case "unmark":
        applied();
        this.#isMarked = action.kind === "mark";
        return undefined;
      case "masquerade":
        applied();
        this.#isMasqueraded = true;
        return "accept";
      case "drop":
      case "reject":
        applied();
        return action.kind;
      case "remember":
        applied();
        return undefined;
      default:
        return assertNever(action);
    }
  }

  /** What a goto does not decide, nobody decides: it does not come back. */
  #enter(verdict: Verdict | (Action & { readonly kind: "goto" | "jump" })): Verdictum | "return" | undefined {
    if (!("chain" in verdict)) return verdict.kind;
    const inner = this.#chain(verdict.chain);
    return verdict.kind === "goto" ? (inner ?? "return") : inner;
  }

  #translate(value: ByteString): void {
    const bytes = Buffer.from(value, "latin1");
    const length = this.#family === 4 ? 4 : 16;
    this.#destination = IpAddress.fromBytes(bytes.subarray(0, length));
    this.#port = bytes.readUInt16BE(length);
    this.#isTranslated = true;
  }

  #matches(match: Match): boolean {
    switch (match.kind) {
      case "new":
        return true;
      case "dnat":
        return this.#isTranslated;
      case "marked":
        return this.#isMarked;
      case "protocol":
        return match.protocols.includes(this.#packet.protocol);
      case "local":
        return this.#isLocal(match.part === "saddr" ? this.#packet.source : this.#destination) !== (match.not ?? false);
      case "no-loopback":
        return !LOOPBACK[this.#family].contains(this.#destination);
      case "pod":
        return this.#isPod(match) !== (match.not ?? false);
      case "in":
        return this.#isIn(match) !== (match.not ?? false);
      default:
        return assertNever(match);
    }
  }

  #isPod({ detector }: Match & { readonly kind: "pod" }): boolean {
    const { inputInterface = "" } = this.#packet;
    switch (detector.kind) {
      case "source":
        return detector.cidr.contains(this.#packet.source);
      case "interface":
        return inputInterface === detector.name;
      case "interface-prefix":
        return inputInterface.startsWith(detector.prefix);
      default:
        return assertNever(detector);
    }
  }

  #isIn({ set, key }: Match & { readonly kind: "in" }): boolean {
    if (set === SETS.serviceCidrs) return this.#world.serviceCIDRs.some((cidr) => cidr.contains(this.#destination));
    if (set === SETS.firewallAllow) {
      const frontEnd = addressKey(this.#destination, this.#packet.protocol, this.#port);
      return this.#world.allowed(frontEnd).some((cidr) => cidr.contains(this.#packet.source));
    }
    return this.#world.lookup(set, this.#key(key)) !== undefined;
  }

  #isLocal(address: IpAddress): boolean {
    return LOOPBACK[this.#family].contains(address) || this.#world.localAddresses.some((own) => own.equals(address));
  }

  #key(parts: readonly KeyPart[]): ByteString {
    return parts.map((part) => this.#part(part)).join("");
  }

  #part(part: KeyPart): ByteString {
    const port = (protocol: Protocol): ByteString => portBytes(protocol, this.#port);
    if (typeof part === "object") return slotBytes(Math.floor((this.#world.random ?? Math.random)() * part.slots));
    switch (part) {
      case "saddr":
        return addressBytes(this.#packet.source);
      case "daddr":
        return addressBytes(this.#destination);
      case "protocol":
        return port(this.#packet.protocol).slice(0, 4);
      case "dport":
        return port(this.#packet.protocol).slice(4);
      default:
        return assertNever(part);
    }
  }
}
