import * as v from "valibot";
import { Cidr, IpAddress } from "#base/ip";

/** A key of etcd with its value. */
export interface V1Entry {
  readonly key: string;
  readonly value: Uint8Array;
}

/** A pool of Coil v1. Each block has 2^blockSize addresses. */
export interface V1Pool {
  readonly key: string;
  readonly name: string;
  readonly blockSize: number;
  readonly subnets: readonly Cidr[];
}

/** A block that v1 has assigned to a node. */
export interface V1Assignment {
  readonly key: string;
  readonly pool: string;
  readonly node: string;
  readonly block: Cidr;
}

/** An address that v1 has given to a pod. */
export interface V1Address {
  readonly key: string;
  readonly address: IpAddress;
  readonly pod: string;
}

/** The data that v1 has stored (docs/spec/pod-network.md#14). */
export interface V1Data {
  readonly pools: readonly V1Pool[];
  readonly assignments: readonly V1Assignment[];
  readonly addresses: readonly V1Address[];
}

/** Data, and its faults and warnings: one line each, which begins with the key. */
export interface V1Reading {
  readonly data: V1Data;
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
}

/** IPv4 has 32 bits, so a block cannot be larger. */
const blockSize = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(32));
const poolSchema = v.object({ subnets: v.pipe(v.array(v.string()), v.minLength(1)), block_size: blockSize });
/** Go writes an empty list or map as null too. */
const prefixesSchema = v.nullish(v.array(v.string()), []);
const isMap = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
const blockSchema = v.object({
  free: prefixesSchema,
  nodes: v.nullish(v.custom<Record<string, unknown>>(isMap, "Invalid type: Expected an object"), {}),
});
const addressSchema = v.object({ namespace: v.string(), pod: v.string() });

/** Reads the keys under `prefix`, which ends in a slash. Pure, and throws nothing: every fault is in the result. */
export function readV1(entries: Iterable<V1Entry>, prefix: string): V1Reading {
  const reader = new Reader();
  for (const { key, value } of entries) {
    if (!key.startsWith(prefix)) continue;
    reader.read(key, key.slice(prefix.length).split("/"), value);
  }
  return reader.reading();
}

/** Thrown within this file for a value that cannot be used. */
class Fault extends Error {}

class Reader {
  readonly #pools: V1Pool[] = [];
  readonly #assignments: V1Assignment[] = [];
  readonly #addresses: V1Address[] = [];
  readonly #faults: string[] = [];
  readonly #warnings: string[] = [];

  read(key: string, [kind = "", ...parts]: readonly string[], value: Uint8Array): void {
    try {
      const [first = "", second = ""] = parts;
      if (kind === "pool" && parts.length === 1) this.#pools.push(poolOf(key, first, value));
      else if (kind === "block" && parts.length === 2) this.#block(key, first, second, value);
      else if (kind === "ip" && parts.length === 2) this.#addresses.push(addressOf(key, first, second, value));
      // The subnets of a pool are in the pool; the markers only ensure that two pools do not have the same subnet.
      else if (kind === "subnet" && parts.length === 1) addressIn(first);
      else this.#warnings.push(`${key}: Coil v1 has no key of this form; the key is ignored`);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.#faults.push(`${key}: ${error.message}`);
    }
  }

  reading(): V1Reading {
    return {
      data: { pools: this.#pools, assignments: this.#assignments, addresses: this.#addresses },
      faults: this.#faults,
      warnings: this.#warnings,
    };
  }

  #block(key: string, pool: string, subnet: string, value: Uint8Array): void {
    addressIn(subnet);
    const { free, nodes } = parse(blockSchema, value);
    const assigned = Object.entries(nodes).map(([node, list]) => {
      const blocks = check(prefixesSchema, list, `nodes.${node}`);
      return [node, blocks.map((text) => prefixOf(text, `nodes.${node}`))] as const;
    });
    const freeBlocks = new Set(free.map((text) => prefixOf(text, "free").toString()));
    for (const [node, blocks] of assigned) {
      for (const block of blocks) {
        this.#assignments.push({ key, pool, node, block });
        if (freeBlocks.has(block.toString()))
          this.#warnings.push(`${key}: ${block} is both free and assigned to node ${node}; it is treated as assigned`);
      }
    }
  }
}

function poolOf(key: string, name: string, value: Uint8Array): V1Pool {
  const { subnets, block_size } = parse(poolSchema, value);
  return { key, name, blockSize: block_size, subnets: subnets.map((text) => prefixOf(text, "subnets")) };
}

function addressOf(key: string, block: string, offset: string, value: Uint8Array): V1Address {
  const base = addressIn(block);
  if (!/^\d{1,10}$/.test(offset) || base.value + BigInt(offset) > 0xffffffffn)
    throw new Fault(`"${offset}" is not an offset of an address in a block`);
  const { namespace, pod } = parse(addressSchema, value);
  return { key, address: base.plus(BigInt(offset)), pod: `${namespace}/${pod}` };
}

function addressIn(text: string): IpAddress {
  const address = IpAddress.tryParse(text);
  if (address?.family !== 4)
    throw new Fault(`"${text}" is not an IPv4 address; the network address of a subnet is expected`);
  return address;
}

function prefixOf(text: string, field: string): Cidr {
  const cidr = Cidr.tryParse(text);
  if (cidr?.family !== 4) throw new Fault(`${field}: "${text}" is not an IPv4 prefix such as 10.0.0.0/27`);
  return cidr;
}

function parse<T extends v.GenericSchema>(schema: T, value: Uint8Array): v.InferOutput<T> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(value));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    throw new Fault(`its value is not JSON: ${error.message.replaceAll(/\s+/g, " ")}`);
  }
  if (!isMap(parsed)) throw new Fault("its value is not a JSON object");
  return check(schema, parsed, "");
}

function check<T extends v.GenericSchema>(schema: T, value: unknown, field: string): v.InferOutput<T> {
  const { success, output, issues } = v.safeParse(schema, value);
  if (success) return output;
  const texts = issues.map((issue) => {
    const path = [...(field === "" ? [] : [field]), ...(issue.path ?? []).map((item) => String(item.key))].join(".");
    return path === "" ? issue.message : `${path}: ${issue.message}`;
  });
  throw new Fault(texts.join("; "));
}
