/** The verdict of one filter of forwarded packets on the first packet of a connection from or to a pod. */
export interface ForwardFinding {
  /** As `nftables table inet filter, chain forward`. */
  readonly filter: string;
  readonly family: 4 | 6;
  readonly direction: "from" | "to";
  /** `maybe`: it is dropped, unless a rule that cannot be judged accepts it. */
  readonly outcome: "accepted" | "dropped" | "maybe";
  /** The policy or rule that decides. */
  readonly by: string;
  /** The command that lets it pass. */
  readonly allow: string;
}

/** A packet filter that does not let pass what a machine forwards for pods. */
export interface ForwardDrop extends Pick<ForwardFinding, "filter" | "family" | "by"> {
  /** `maybe`: unless a rule that cannot be judged accepts the packets. */
  readonly outcome: "dropped" | "maybe";
  readonly directions: readonly ForwardFinding["direction"][];
  /** The commands that let the packets pass, one for each direction; for the block of one pod. */
  readonly allow: readonly string[];
}

/** The text that says what the commands of {@link ForwardDrop} leave to do. */
export const ALLOW_ALL = "for all blocks of the node or the whole pool, and the same in the file that loads the filter";

/** The filters that drop packets of pods, each once for a family and a reason. Pure. */
export function forwardDrops(findings: readonly ForwardFinding[]): readonly ForwardDrop[] {
  const drops = findings.flatMap((one) => (one.outcome === "accepted" ? [] : [{ ...one, outcome: one.outcome }]));
  const groups = Map.groupBy(drops, ({ filter, family, outcome, by }) => `${filter} ${family} ${outcome} ${by}`);
  return [...groups.values()].flatMap((group): readonly ForwardDrop[] => {
    const [first] = group;
    if (first === undefined) return [];
    const { filter, family, outcome, by } = first;
    const directions = group.map(({ direction }) => direction);
    return [{ filter, family, outcome, by, directions, allow: group.map(({ allow }) => allow) }];
  });
}

/** Says what a filter does, without its name. Pure. */
export function forwardDropText({ directions, family, by, outcome }: ForwardDrop): string {
  const unless = outcome === "maybe" ? ", unless a rule that cannot be judged here accepts them before" : "";
  return `drops packets ${directions.join(" and ")} pods (IPv${family}) by ${by}${unless}`;
}
