import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { ExpectedError } from "#base/errors";
import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { ForwardFinding } from "#features/suite-report";
import type { NetNs } from "#kernel/netns";
import { openRuleset } from "#kernel/nft";
import { optional } from "../../suite/index.ts";
import { iptablesForward } from "./iptables.ts";
import { type ForwardedPacket, type ForwardFilter, follow } from "./model.ts";
import { nftForward, readForwardChains } from "./nft-json.ts";

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
class ForwardError extends ExpectedError<"not-listed"> {
  override readonly name = "ForwardError";
}

/**
 * Follows a first packet from and to a pod of each family through each filter of forwarded packets: nftables, and iptables of both variants. Changes nothing, and
 * loads no module: the old variant is only listed where the kernel has its table. Rejects with {@link ForwardError} and with the signal's reason.
 */
export async function readForward(
  samples: readonly PodSample[],
  { netns, uplink }: { readonly netns: Pick<NetNs, "fd">; readonly uplink: string },
  { signal }: { readonly signal: AbortSignal },
): Promise<readonly ForwardFinding[]> {
  using reader = openRuleset(netns);
  const filters = await readFilters(readForwardChains(reader), { signal });
  return filters.flatMap((filter) =>
    samples
      .filter(({ address }) => filter.families.includes(address.family))
      .flatMap((sample) =>
        (["from", "to"] as const).map((direction) => {
          const { kind, by } = follow(filter, packetOf(sample, uplink, direction));
          const { family } = sample.address;
          const allow = filter.allow(direction, String(sample.block), family);
          return { filter: filter.name, family, direction, outcome: kind, by, allow };
        }),
      ),
  );
}

function packetOf({ address, link }: PodSample, uplink: string, direction: "from" | "to"): ForwardedPacket {
  const { family } = address;
  const outside = OUTSIDE[family];
  return direction === "from"
    ? { family, iif: link, oif: uplink, source: address, destination: outside }
    : { family, iif: uplink, oif: link, source: outside, destination: address };
}

async function readFilters(
  ruleset: unknown,
  options: { readonly signal: AbortSignal },
): Promise<readonly ForwardFilter[]> {
  const natives = nftForward(ruleset);
  const filters: ForwardFilter[] = [];
  const ofIptables = new Set<string>();
  const list = async (command: string, family: IpFamily, variant: string): Promise<boolean> => {
    const text = await output(command, ["-S"], options);
    const filter = text === undefined ? undefined : iptablesForward(text, family, variant);
    if (filter !== undefined) filters.push(filter);
    return text !== undefined;
  };
  for (const [family, prefix, names] of [
    [4, "iptables", "ip_tables_names"],
    [6, "ip6tables", "ip6_tables_names"],
  ] as const) {
    const table = family === 4 ? "ip filter" : "ip6 filter";
    // Without the command the table is judged as nftables shows it, which has no conditions of iptables' modules.
    const own = `nftables table ${table}, chain FORWARD`;
    if (natives.some(({ name }) => name === own) && (await list(`${prefix}-nft`, family, "nf_tables")))
      ofIptables.add(own);
    const legacy = optional(() => readFileSync(`/proc/net/${names}`, "utf8"))?.split("\n") ?? [];
    if (legacy.includes("filter") && !(await list(`${prefix}-legacy`, family, "legacy")))
      throw new ForwardError("not-listed", `there are rules of ${prefix}-legacy, and no ${prefix}-legacy to list them`);
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
    throw new ForwardError("not-listed", `${[command, ...args].join(" ")}: ${error.message.trim()}`, { cause: error });
  }
}
