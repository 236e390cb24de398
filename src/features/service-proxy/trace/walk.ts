import { assertNever } from "#base/errors";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { ByteString, ElementValue, Verdict } from "#kernel/nft-elements";
import { addressBytes, addressKey, portBytes, slotBytes } from "../plan/index.ts";
import { type Action, type KeyPart, type Match, printRule, type Rule, SETS } from "../rules/index.ts";
import type { Outcome, Packet, Step, Trace, TraceContext, TracedElement } from "./types.ts";

const LOOPBACK = { 4: Cidr.parse("127.0.0.0/8"), 6: Cidr.parse("::1/128") } as const;

/** Base chains in the order of their priorities, by hook. */
const PREROUTING = ["filter-prerouting", "nat-prerouting"];
const OUTPUT = ["filter-output-pre-dnat", "nat-output", "filter-output"];
const FORWARD = ["filter-forward"];
const INPUT = ["affinity-input"];
const POSTROUTING = ["affinity-postrouting", "nat-postrouting"];

/**
 * Traces the first packet of a connection through the rules, as the kernel does (docs/spec/service-proxy.md#3.1). Pure.
 * A packet that no rule translates counts as delivered: other tables and routes are not known here.
 */
export function trace(packet: Packet, context: TraceContext): Trace {
  const walk = new Walk(packet, context);
  const outcome = walk.run();
  return { outcome, steps: walk.steps, slots: walk.slots };
}

/** Traces the packet once for each slot that may be drawn, at least once. Pure. */
export function traceAll(packet: Packet, context: TraceContext): readonly [Trace, ...Trace[]] {
  const first = trace(packet, { ...context, random: () => 0 });
  const others = Array.from({ length: Math.max(0, first.slots - 1) }, (_, at) =>
    // The number is in the middle of the slot's share, so that rounding cannot give another slot.
    trace(packet, { ...context, random: () => (at + 1.5) / first.slots }),
  );
  return [first, ...others];
}

/** A key as bytes of the kernel, and as text of nft(8). */
interface KeyOf {
  readonly bytes: ByteString;
  readonly text: string;
}

type FinalVerdict = "accept" | "drop" | "reject";

class Walk {
  readonly #context: TraceContext;
  readonly #packet: Packet;
  readonly #family: IpFamily;
  readonly steps: Step[] = [];
  slots = 0;
  #destination: IpAddress;
  #port: number;
  #isTranslated = false;
  #isMarked = false;
  #isMasqueraded = false;

  constructor(packet: Packet, context: TraceContext) {
    this.#packet = packet;
    this.#context = context;
    this.#family = packet.destination.family;
    this.#destination = packet.destination;
    this.#port = packet.port;
  }

  run(): Outcome {
    const isOwn = this.#packet.inputInterface === undefined;
    const isForUs = (): boolean => this.#isLocal(this.#destination);
    const before = this.#through(isOwn ? OUTPUT : PREROUTING);
    if (before !== undefined) return before;
    if (!isOwn) {
      const after = this.#through(isForUs() ? INPUT : FORWARD);
      if (after !== undefined) return after;
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

  /** Walks through a chain. `undefined`: the end of the chain was reached. */
  #chain(name: string): FinalVerdict | undefined {
    const chain = this.#context.chains.get(name);
    if (chain === undefined) throw new Error(`there is no chain ${name}`);
    for (const rule of chain.rules) {
      if (!rule.matches.every((match) => this.#matches(match))) continue;
      const verdict = this.#actions(name, rule);
      if (verdict === "return") return undefined;
      if (verdict !== undefined) return verdict;
    }
    return undefined;
  }

  #actions(chain: string, rule: Rule): FinalVerdict | "return" | undefined {
    const matched = this.#matchedElement(rule);
    const text = (): string => printRule(rule, { family: this.#family, mark: this.#context.mark });
    for (const action of rule.actions) {
      const done = this.#act(action, (element = matched) => {
        const found = element === undefined ? {} : { element };
        this.steps.push({ chain, action: action.kind, text: text(), ...found });
      });
      if (done !== undefined) return done;
    }
    return undefined;
  }

  /** The element that the rule's last set match found. */
  #matchedElement({ matches }: Rule): TracedElement | undefined {
    const match = matches.findLast((one) => one.kind === "in" && one.not !== true);
    if (match?.kind !== "in") return undefined;
    const { set } = match;
    if (set !== SETS.serviceCidrs) return this.#element(set, this.#key(match.key), true);
    const cidr = this.#context.serviceCIDRs.find((one) => one.contains(this.#destination));
    return cidr === undefined ? undefined : { set, text: cidr.toString() };
  }

  #act(action: Action, applied: (element?: TracedElement) => void): FinalVerdict | "return" | undefined {
    switch (action.kind) {
      case "goto":
      case "jump":
        applied();
        return this.#enter(action);
      case "map": {
        const key = this.#key(action.key);
        const found = this.#context.lookup(action.map, key.bytes);
        if (typeof found !== "object") return undefined;
        applied(this.#element(action.map, key, found));
        if (found.kind === "goto" || found.kind === "jump") return this.#enter(found);
        return found.kind;
      }
      case "dnat": {
        const key = this.#key(action.key);
        const found = this.#context.lookup(action.map, key.bytes);
        if (typeof found !== "string") return undefined;
        applied(this.#element(action.map, key, found));
        this.#translate(found);
        return "accept";
      }
      case "recall":
        // A new client has no affinity entry.
        return undefined;
      case "mark":
      case "unmark":
        applied();
        this.#isMarked = action.kind === "mark";
        return undefined;
      case "masquerade":
        applied();
        this.#isMasqueraded = true;
        return "accept";
      case "accept":
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

  #element(set: string, key: KeyOf, value: ElementValue | true): TracedElement {
    const service = this.#context.serviceOf(set, key.bytes);
    const text = value === true ? key.text : `${key.text} : ${this.#valueText(value)}`;
    return service === undefined ? { set, text } : { set, text, service };
  }

  #valueText(value: ElementValue): string {
    if (typeof value === "object") return "chain" in value ? `${value.kind} ${value.chain}` : value.kind;
    const { address, port } = this.#readEndpoint(value);
    return `${address} . ${port}`;
  }

  /** A goto does not return: if its chain gives no verdict, evaluation of the base chain ends. */
  #enter(verdict: Verdict | (Action & { readonly kind: "goto" | "jump" })): FinalVerdict | "return" | undefined {
    if (!("chain" in verdict)) return verdict.kind;
    const inner = this.#chain(verdict.chain);
    return verdict.kind === "goto" ? (inner ?? "return") : inner;
  }

  #translate(value: ByteString): void {
    const { address, port } = this.#readEndpoint(value);
    this.#destination = address;
    this.#port = port;
    this.#isTranslated = true;
  }

  #readEndpoint(value: ByteString): { readonly address: IpAddress; readonly port: number } {
    const bytes = Buffer.from(value, "latin1");
    const length = this.#family === 4 ? 4 : 16;
    return { address: IpAddress.fromBytes(bytes.subarray(0, length)), port: bytes.readUInt16BE(length) };
  }

  #matches(match: Match): boolean {
    switch (match.kind) {
      case "new":
        return true;
      case "first":
        return match.not !== true;
      case "dnat":
        return this.#isTranslated !== (match.not ?? false);
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
    if (set === SETS.serviceCidrs) return this.#context.serviceCIDRs.some((cidr) => cidr.contains(this.#destination));
    if (set === SETS.firewallAllow) {
      const frontEnd = addressKey(this.#destination, this.#packet.protocol, this.#port);
      return this.#context.allowed(frontEnd).some((cidr) => cidr.contains(this.#packet.source));
    }
    return this.#context.lookup(set, this.#key(key).bytes) !== undefined;
  }

  #isLocal(address: IpAddress): boolean {
    return LOOPBACK[this.#family].contains(address) || this.#context.localAddresses.some((own) => own.equals(address));
  }

  #key(parts: readonly KeyPart[]): KeyOf {
    const read = parts.map((part) => this.#part(part));
    return { bytes: read.map(({ bytes }) => bytes).join(""), text: read.map(({ text }) => text).join(" . ") };
  }

  #part(part: KeyPart): KeyOf {
    const { protocol, source } = this.#packet;
    if (typeof part === "object") {
      this.slots = Math.max(this.slots, part.slots);
      const slot = Math.floor((this.#context.random ?? Math.random)() * part.slots);
      return { bytes: slotBytes(slot), text: String(slot) };
    }
    const port = portBytes(protocol, this.#port);
    switch (part) {
      case "saddr":
        return { bytes: addressBytes(source), text: source.toString() };
      case "daddr":
        return { bytes: addressBytes(this.#destination), text: this.#destination.toString() };
      case "protocol":
        return { bytes: port.slice(0, 4), text: protocol.toLowerCase() };
      case "dport":
        return { bytes: port.slice(4), text: String(this.#port) };
      default:
        return assertNever(part);
    }
  }
}
