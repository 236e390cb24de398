import { createHash } from "node:crypto";
import { IpAddress, type IpFamily } from "#base/ip";
import { type Nft, type NftElement, NftTransaction } from "#kernel/nft";
import { ElementBatch, type NftElements, type RawElement, verdictText } from "#kernel/nft-elements";
import type { GuardCounter, GuardElement, GuardPlan, GuardSet } from "./plan.ts";
import type { AddressRange } from "./ranges.ts";

/** The packet filter of a namespace. Both belong to the same one. */
export interface GuardPorts {
  readonly nft: Nft;
  readonly elements: Pick<NftElements, "list" | "commit" | "structure" | "rules" | "wantsRecords">;
}

/** The guard's table in one namespace. Only one call may run at a time. */
export class GuardTable {
  readonly #ports: GuardPorts;
  readonly #table: GuardPlan["table"];
  /** The kernel's listing of the table at the last comparison of its chains and rules. They are compared again when handles differ from it. */
  #compared: { readonly shape: string; readonly structure: string } | undefined;

  constructor(ports: GuardPorts, table: GuardPlan["table"]) {
    this.#ports = ports;
    this.#table = table;
  }

  /** True if the kernel has the table. Throws `KernelError`. */
  get exists(): boolean {
    return this.#ports.elements.structure(this.#table).length > 0;
  }

  /**
   * Brings the table to `plan`, and returns the number of changes: elements that were added or deleted, or 1 for a table that was made or made again, which is
   * one transaction with all its elements. Rejects with `NftError` and `KernelError`; what was there before is in force then.
   */
  async sync(plan: GuardPlan): Promise<number> {
    const shape = shapeOf(plan);
    if (!this.#hasShape(plan, shape)) {
      this.#ports.nft.run(wholeTable(plan, shape, { isThere: this.exists }));
      this.#compared = { shape, structure: this.#structure() };
      return 1;
    }
    return this.#syncRanges(plan) + (await this.#syncElements(plan));
  }

  /** Removes the table. Throws `NftError`. */
  remove(): void {
    this.#ports.nft.run(new NftTransaction(this.#table).removeTable());
  }

  /** Returns the packets that were counted since the table was made, by label; none if there is no table. Throws `KernelError`. */
  counters(): GuardCounter[] {
    const sums = new Map<string, GuardCounter>();
    for (const { comment = "", counter } of this.#ports.elements.rules(this.#table)) {
      if (counter === undefined) continue;
      const [reason = ""] = comment.split(" ");
      const sum = sums.get(reason) ?? { reason, packets: 0, bytes: 0 };
      sums.set(reason, { reason, packets: sum.packets + counter.packets, bytes: sum.bytes + counter.bytes });
    }
    return [...sums.values()];
  }

  #structure(): string {
    return this.#ports.elements.structure(this.#table).join("\n");
  }

  #hasShape({ chains }: GuardPlan, shape: string): boolean {
    const structure = this.#structure();
    if (structure === "") return false;
    if (this.#compared?.shape === shape && this.#compared.structure === structure) return true;
    const all = Map.groupBy(this.#ports.elements.rules(this.#table), ({ chain }) => chain);
    const isSame = chains.every(({ name, rules }) => {
      const found = (all.get(name) ?? []).map(({ comment }) => comment);
      return found.length === rules.length && rules.every((rule, at) => commentOf(rule, shape) === found[at]);
    });
    if (isSame) this.#compared = { shape, structure };
    return isSame;
  }

  #syncRanges({ table, sets }: GuardPlan): number {
    let changes = 0;
    for (const { name, elements } of sets) {
      if (elements === "by-rules" || !("ranges" in elements)) continue;
      const found = rangesOf(this.#ports.elements.list(table, name));
      if (found.join() === elements.ranges.map(rangeText).join()) continue;
      const change = new NftTransaction(table).flushSet(name).elements(name, elements.ranges.map(rangeElement));
      this.#ports.nft.run(change);
      changes += 1;
    }
    return changes;
  }

  async #syncElements({ table, sets }: GuardPlan): Promise<number> {
    const batch = new ElementBatch(table, { record: this.#ports.elements.wantsRecords });
    for (const { name, elements } of sets) {
      if (elements === "by-rules" || "ranges" in elements) continue;
      const left = new Map(this.#ports.elements.list(table, name).map(({ key, value }) => [key, valueText(value)]));
      for (const { key, value } of elements) {
        const found = left.get(key);
        const isThere = left.delete(key);
        if (isThere && found === valueText(value?.raw)) continue;
        if (isThere) batch.delete(name, key);
        batch.add(name, key, value?.raw);
      }
      for (const key of left.keys()) batch.delete(name, key);
    }
    const { count } = batch;
    if (count > 0) await this.#ports.elements.commit(batch);
    return count;
  }
}

/** Changes with anything but the elements. */
function shapeOf({ sets, chains }: GuardPlan): string {
  const fixed = { sets: sets.map(({ name, spec }) => ({ name, spec })), chains };
  return createHash("sha256").update(JSON.stringify(fixed)).digest("hex").slice(0, 8);
}

function commentOf({ reason }: { readonly reason?: string }, shape: string): string {
  return `${reason ?? "pass"} ${shape}`;
}

/**
 * Without a table nothing is deleted: the kernel frees what was deleted after a grace period, for which the end of a socket of nf_tables waits, 10 to 15 ms in
 * each ADD of a client.
 */
function wholeTable(
  { table, sets, chains }: GuardPlan,
  shape: string,
  { isThere }: { readonly isThere: boolean },
): NftTransaction {
  const change = new NftTransaction(table);
  if (isThere) change.replaceTable();
  else change.addTable();
  for (const { name, spec } of sets) change.set(name, spec);
  // A rule may lead to a chain that stands behind its own, and so may an element.
  for (const { name, base } of chains) change.chain(name, base);
  for (const set of sets) change.elements(set.name, textsOf(set));
  for (const { name, rules } of chains)
    for (const rule of rules) change.rule(name, rule.rule, { comment: commentOf(rule, shape) });
  return change;
}

function textsOf({ elements }: GuardSet): NftElement[] {
  if (elements === "by-rules") return [];
  if ("ranges" in elements) return elements.ranges.map(rangeElement);
  return elements.map(({ text, value }: GuardElement) =>
    value === undefined ? { key: text } : { key: text, value: value.text },
  );
}

function valueText(value: RawElement["value"]): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : verdictText(value);
}

const rangeElement = (range: AddressRange): { readonly key: readonly string[] } => ({ key: [rangeText(range)] });
const rangeText = ({ first, last }: AddressRange): string => (first.equals(last) ? `${first}` : `${first}-${last}`);

/** The ranges of a set as the kernel lists them: the first address of each, and the first one behind it, unless that would be past the last address. */
function rangesOf(listed: readonly RawElement[]): string[] {
  const marks = listed
    .map(({ key, isEnd = false }) => ({ address: IpAddress.fromBytes(Buffer.from(key, "latin1")), isEnd }))
    .toSorted((a, b) => a.address.compare(b.address) || Number(b.isEnd) - Number(a.isEnd));
  const texts: string[] = [];
  let first: IpAddress | undefined;
  for (const { address, isEnd } of marks) {
    if (isEnd && first !== undefined) texts.push(rangeText({ first, last: address.plus(-1) }));
    first = isEnd ? undefined : address;
  }
  if (first !== undefined) texts.push(rangeText({ first, last: lastOf(first.family) }));
  return texts;
}

function lastOf(family: IpFamily): IpAddress {
  return IpAddress.fromValue(family, (1n << (family === 4 ? 32n : 128n)) - 1n);
}
