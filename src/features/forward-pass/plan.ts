import type { Cidr } from "#base/ip";

/** The beginning of the comments of our rules. */
export const COMMENT = "isthmus: pods";
/** The links of pods, as `coild` names them. */
const LINKS = "veth+";

/** A rule of the chain, as `iptables -S` shows it. */
interface ChainRule {
  /** Its specification, after `-A FORWARD`. */
  readonly text: string;
  /** The comment of one of our rules; `undefined` for a rule of others. */
  readonly comment: string | undefined;
  /** It drops or rejects every packet. */
  readonly dropsAll: boolean;
}

/** The chain FORWARD of the table filter. */
export interface ForwardChain {
  readonly policy: string;
  readonly rules: readonly ChainRule[];
}

/** Reads the text of `iptables -S FORWARD`; `undefined` if it has no such chain. Pure; any text may be given. */
export function parseForward(text: string): ForwardChain | undefined {
  const policy = /^-P FORWARD (\S+)$/m.exec(text)?.[1];
  if (policy === undefined) return undefined;
  const rules = text.split("\n").flatMap((line): readonly ChainRule[] => {
    if (!line.startsWith("-A FORWARD ")) return [];
    const rest = line.slice("-A FORWARD ".length);
    const at = rest.indexOf(`--comment "${COMMENT} `);
    const from = at + '--comment "'.length;
    return [
      {
        text: rest,
        comment: at < 0 ? undefined : rest.slice(from, rest.indexOf('"', from)),
        dropsAll: /^(-m comment --comment ("[^"]*"|\S+) )?-j (DROP|REJECT)( --reject-with \S+)?$/.test(rest),
      },
    ];
  });
  return { policy, rules };
}

/**
 * The input of `iptables-restore --noflush` after which packets from and to the pods of these blocks pass: only where the policy, or the last rule, drops what
 * no rule before has accepted. Our rules stand last, directly before such a rule, so that a drop that somebody wrote on purpose still wins. Elsewhere ours are removed.
 * `undefined`: nothing is to be done. Pure.
 */
export function planForward({ policy, rules }: ForwardChain, blocks: readonly Cidr[]): string | undefined {
  const others = rules.filter(({ comment }) => comment === undefined);
  const endsInDrop = others.at(-1)?.dropsAll === true;
  const isNeeded = policy === "DROP" || endsInDrop;
  const wanted = isNeeded ? [...blocks].sort((a, b) => a.compare(b)).flatMap((block) => ourRules(block)) : [];
  const before = others.length - (endsInDrop ? 1 : 0);
  const should = [
    ...others.slice(0, before).map(() => undefined),
    ...wanted.map(({ comment }) => comment),
    ...others.slice(before).map(() => undefined),
  ];
  if (should.length === rules.length && should.every((comment, at) => comment === rules[at]?.comment)) return undefined;
  // By specification: others may have changed the chain since it was read. If one of ours is gone, nothing of the script is done.
  const removed = rules.flatMap(({ comment, text }) => (comment === undefined ? [] : [`-D FORWARD ${text}`]));
  const added = wanted.map(
    ({ comment, match }, at) => `-I FORWARD ${before + at + 1} ${match} -m comment --comment "${comment}" -j ACCEPT`,
  );
  return ["*filter", ...removed, ...added, "COMMIT", ""].join("\n");
}

function ourRules(block: Cidr): readonly { readonly comment: string; readonly match: string }[] {
  return [
    { comment: `${COMMENT} from ${block}`, match: `-i ${LINKS} -s ${block}` },
    { comment: `${COMMENT} to ${block}`, match: `-o ${LINKS} -d ${block}` },
  ];
}
