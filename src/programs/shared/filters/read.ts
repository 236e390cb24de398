import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { ExpectedError } from "#base/errors";
import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { ForwardFinding, InputFinding } from "#features/suite-report";
import type { NetNs } from "#kernel/netns";
import { openRuleset } from "#kernel/nft";
import { optional } from "../suite/index.ts";
import { iptablesFilter } from "./iptables.ts";
import { type FilteredPacket, follow, type Hook, type PacketFilter } from "./model.ts";
import { nftFilters, readChains } from "./nft-json.ts";

/** Limits of one listing. */
const TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 << 20;
/** Addresses outside of every cluster (RFC 5737, RFC 3849), as the other end of a pod's connection. */
const OUTSIDE = { 4: IpAddress.parse("192.0.2.1"), 6: IpAddress.parse("2001:db8::1") } as const;

/** A pod's place on the node, or that of one which starts next. */
export interface PodSample {
  readonly address: IpAddress;
  /** Name of the host's end of its link. */
  readonly link: string;
  /** The block that the address is of. */
  readonly block: Cidr;
}

/** A filter cannot be listed. */
class FilterError extends ExpectedError<"not-listed"> {
  override readonly name = "FilterError";
}

/**
 * Follows a first packet from and to a pod of each family through each filter of forwarded packets: nftables, and iptables of both variants. Changes nothing, and
 * loads no module: the old variant is only listed where the kernel has its table. Rejects with {@link FilterError} and with the signal's reason.
 */
export async function readForward(
  samples: readonly PodSample[],
  { netns, uplink }: { readonly netns: Pick<NetNs, "fd">; readonly uplink: string },
  { signal }: { readonly signal: AbortSignal },
): Promise<readonly ForwardFinding[]> {
  using reader = openRuleset(netns);
  const filters = await readFilters(readChains(reader, "forward"), "forward", { signal });
  return filters.flatMap((filter) =>
    samples
      .filter(({ address }) => filter.families.includes(address.family))
      .flatMap((sample) =>
        (["from", "to"] as const).map((direction) => {
          const { kind, by } = follow(filter, packetOf(sample, uplink, direction));
          const { family } = sample.address;
          const allow = filter.allow({ direction, prefix: String(sample.block), family });
          return { filter: filter.name, family, direction, outcome: kind, by, allow };
        }),
      ),
  );
}

/**
 * Follows a first packet of a stranger to each TCP port through each filter of packets to this node. Changes nothing. Rejects as {@link readForward}.
 */
export async function readInput(
  ports: readonly number[],
  { netns, uplink }: { readonly netns: Pick<NetNs, "fd">; readonly uplink: string },
  { signal }: { readonly signal: AbortSignal },
): Promise<readonly InputFinding[]> {
  using reader = openRuleset(netns);
  const filters = await readFilters(readChains(reader, "input"), "input", { signal });
  return filters.flatMap((filter) =>
    filter.families.flatMap((family) =>
      ports.map((port) => {
        const { kind, by } = follow(filter, { family, iif: uplink, source: OUTSIDE[family], port });
        return { filter: filter.name, family, port, outcome: kind, by, allow: filter.allow({ port }) };
      }),
    ),
  );
}

function packetOf({ address, link }: PodSample, uplink: string, direction: "from" | "to"): FilteredPacket {
  const { family } = address;
  const outside = OUTSIDE[family];
  return direction === "from"
    ? { family, iif: link, oif: uplink, source: address, destination: outside }
    : { family, iif: uplink, oif: link, source: outside, destination: address };
}

async function readFilters(
  ruleset: unknown,
  hook: Hook,
  options: { readonly signal: AbortSignal },
): Promise<readonly PacketFilter[]> {
  const natives = nftFilters(ruleset, hook);
  const filters: PacketFilter[] = [];
  const ofIptables = new Set<string>();
  const list = async (command: string, family: IpFamily, variant: string): Promise<boolean> => {
    const text = await output(command, ["-S"], options);
    const filter = text === undefined ? undefined : iptablesFilter(text, { family, variant, hook });
    if (filter !== undefined) filters.push(filter);
    return text !== undefined;
  };
  for (const [family, prefix, names] of [
    [4, "iptables", "ip_tables_names"],
    [6, "ip6tables", "ip6_tables_names"],
  ] as const) {
    const table = family === 4 ? "ip filter" : "ip6 filter";
    // Without the command the table is judged as nftables shows it, which has no conditions of iptables' modules.
    const own = `nftables table ${table}, chain ${hook === "forward" ? "FORWARD" : "INPUT"}`;
    if (natives.some(({ name }) => name === own) && (await list(`${prefix}-nft`, family, "nf_tables")))
      ofIptables.add(own);
    const legacy = optional(() => readFileSync(`/proc/net/${names}`, "utf8"))?.split("\n") ?? [];
    if (legacy.includes("filter") && !(await list(`${prefix}-legacy`, family, "legacy")))
      throw new FilterError("not-listed", `there are rules of ${prefix}-legacy, and no ${prefix}-legacy to list them`);
  }
  return [...filters, ...natives.filter(({ name }) => !ofIptables.has(name))];
}

/** The output of a command; `undefined` if there is no such command. */
async function output(
  command: string,
  args: readonly string[],
  { signal }: { readonly signal: AbortSignal },
): Promise<string | undefined> {
  const limits = { signal, timeout: TIMEOUT_MS, maxBuffer: MAX_BYTES };
  try {
    return (await promisify(execFile)(command, [...args], limits)).stdout;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Error)) throw error;
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new FilterError("not-listed", `${[command, ...args].join(" ")}: ${error.message.trim()}`, { cause: error });
  }
}
