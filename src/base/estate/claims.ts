/** A number, or the first and the last number of a range. */
export type Span = number | readonly [first: number, last: number];

/**
 * The network namespace of a kernel object: the program's own, or that of each client of an Egress, each router of an Egress, or each pod with a
 * NIC of a VPC. Absent in a claim: the program's own.
 */
export type ClaimPlace = "client" | "router" | "pod";

interface Common {
  /** Names the claim within its program. Starts with a letter; letters, digits and dashes, at most 32. */
  readonly id: string;
  readonly in?: ClaimPlace;
}

/** Kernel objects that a program owns, by the mark that distinguishes them from those of others. */
export type KernelClaim =
  /** Routes of one table, or of a range of tables, and one protocol number (rtm_protocol). */
  | (Common & { readonly kind: "routes"; readonly table: Span; readonly protocol: number })
  /** Routing rules. A rule of the claim has each property that is there. */
  | (Common & {
      readonly kind: "rules";
      readonly priority: Span;
      readonly table: Span;
      readonly protocol?: number;
      readonly fwmark?: number;
    })
  /** Links by their alias: the text before the first `<` is the beginning of the alias. */
  | (Common & { readonly kind: "links"; readonly alias: string })
  /** Links by their names; `*` stands for any characters. */
  | (Common & { readonly kind: "link-names"; readonly names: readonly string[] })
  /** Links by their group (IFLA_GROUP). */
  | (Common & { readonly kind: "link-groups"; readonly groups: Span })
  /** A whole nftables table. `chain`: the table is the program's only if it has a chain of this name, or with this beginning before `<`. */
  | (Common & {
      readonly kind: "nft-table";
      readonly family: "ip" | "ip6" | "inet" | "arp";
      readonly name: string;
      readonly chain?: string;
    })
  /** Rules of iptables or nftables by the beginning of their comment. */
  | (Common & { readonly kind: "comments"; readonly chain?: string; readonly comment: string })
  /** An address on a link. `protocol`: its IFA_PROTO. */
  | (Common & {
      readonly kind: "address";
      readonly address: string;
      readonly link: string;
      readonly protocol?: number;
    })
  /** A setting below /proc/sys that the program changes. */
  | (Common & { readonly kind: "sysctl"; readonly key: string; readonly value?: string })
  /** Bits of the packet mark, or a value of it that the program's sockets have. */
  | (Common & { readonly kind: "mark"; readonly value: number })
  /** A UDP port on which the kernel receives packets of tunnels. */
  | (Common & { readonly kind: "udp-port"; readonly port: number });

export type ClaimKind = KernelClaim["kind"];
/** The claims of one kind. */
export type ClaimOf<Kind extends ClaimKind> = Extract<KernelClaim, { readonly kind: Kind }>;

/** A claim in words, as `table 116, protocol 30`. `flags` has the flag of a field, which is named after its value. Pure. */
export function claimText(claim: KernelClaim, flags: Readonly<Record<string, string>> = {}): string {
  const set = (field: string): string => (flags[field] === undefined ? "" : ` (${flags[field]})`);
  switch (claim.kind) {
    case "routes":
      return `${tableText(claim.table)}${set("table")}, protocol ${claim.protocol}${set("protocol")}`;
    case "rules": {
      const to = `${tableText(claim.table)}${set("table")}`;
      const mark = claim.fwmark === undefined ? "" : `, packet mark 0x${claim.fwmark.toString(16)}${set("fwmark")}`;
      const protocol = claim.protocol === undefined ? "" : `, protocol ${claim.protocol}${set("protocol")}`;
      return `rule priority ${spanText(claim.priority)}${set("priority")} to ${to}${mark}${protocol}`;
    }
    case "links":
      return `link alias \`${claim.alias}\``;
    case "link-names":
      return `links ${claim.names.map((name) => `\`${name}\``).join(", ")}${set("names")}`;
    case "link-groups":
      return `link groups ${spanText(claim.groups, 16)}`;
    case "nft-table": {
      const chain = claim.chain === undefined ? "" : `, chain \`${claim.chain}\``;
      return `nftables table \`${claim.family} ${claim.name}\`${set("name")}${chain}`;
    }
    case "comments":
      return `rules${claim.chain === undefined ? "" : ` of ${claim.chain}`} with the comment \`${claim.comment}\``;
    case "address":
      return `address \`${claim.address}\`${set("address")} on \`${claim.link}\`${set("link")}`;
    case "sysctl":
      return `\`${claim.key.replaceAll("/", ".")}\`${set("value")}`;
    case "mark":
      return `packet mark 0x${claim.value.toString(16)}${set("value")}`;
    case "udp-port":
      return `UDP port ${claim.port}${set("port")}`;
  }
}

/** Returns true if a number is that of the claim, or in its range. Pure. */
export function inSpan(span: Span, value: number): boolean {
  return typeof span === "number" ? span === value : span[0] <= value && value <= span[1];
}

/** The text before the first `<` of an alias, a comment or the name of a chain. Pure. */
export function fixedPart(pattern: string): string {
  return pattern.split("<", 1)[0] ?? "";
}

const MAIN_TABLE = 254;
const LAST_NUMBER = 0xffff_ffff;

function tableText(table: Span): string {
  if (table === MAIN_TABLE) return "the main table";
  return typeof table === "number" ? `table ${table}` : `tables ${spanText(table)}`;
}

function spanText(span: Span, radix: 10 | 16 = 10): string {
  const text = (value: number): string => (radix === 16 ? `0x${value.toString(16)}` : String(value));
  if (typeof span === "number") return text(span);
  return span[1] === LAST_NUMBER ? `${text(span[0])} and on` : `${text(span[0])} to ${text(span[1])}`;
}
