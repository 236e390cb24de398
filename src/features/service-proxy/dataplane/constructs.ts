import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { type Nft, NftError, type NftTable, NftTransaction } from "#kernel/nft";
import { ElementBatch, type NftElements } from "#kernel/nft-elements";
import {
  affinitySetSpecs,
  baseChains,
  type Chain,
  compileRule,
  isCompiled,
  printRule,
  type RuleOptions,
  type Shape,
  setSpecs,
  shapeChains,
  slotMaps,
} from "../rules/index.ts";
import { DataPlaneError } from "./errors.ts";

const SECONDS = 10_800;
/** The largest shapes. The chains of a large shape include those of the simpler shapes. */
const SHAPES: readonly Shape[] = [false, true].flatMap((isNodePort) =>
  (["ext", "extl"] as const).map((kind) => ({ kind, isNodePort, hasAffinity: true, count: 2 })),
);
/** Keywords of chains and rules, and the kernel modules that each keyword needs. Only modules that a kernel may lack are listed. */
const MODULES: readonly (readonly [pattern: RegExp, modules: (family: IpFamily) => string])[] = [
  [/\bnumgen\b/, () => "nft_numgen"],
  [/\bfib\b/, (family) => `nft_fib, nft_fib_ipv${family}`],
  [/\bmasquerade\b/, () => "nft_masq"],
  [/\breject\b/, (family) => `nft_reject, nft_reject_ipv${family}`],
  [/\bdnat ip6? to /, () => "nft_nat"],
  [/\btype nat\b/, () => "nft_chain_nat, nf_nat"],
  [/\bct\b/, () => "nft_ct"],
];

/**
 * Makes every set, chain and rule that a family's table may have, one by one. Has to run in a network namespace that is thrown away,
 * because it removes nothing. Rejects with {@link DataPlaneError}, which names the first object that the kernel refuses.
 */
export async function checkConstructs(
  { nft, elements }: { readonly nft: Nft; readonly elements: NftElements },
  family: IpFamily,
): Promise<void> {
  const options: RuleOptions = {
    family,
    mark: 0x4000,
    detector: { kind: "interface-prefix", prefix: "veth" },
    masqueradeAll: false,
    nodePortAddresses: "all-local",
  };
  const table = { family: family === 4 ? "ip" : "ip6", name: "isthmus-check" } as const satisfies NftTable;
  const run = (what: string, fill: (tx: NftTransaction) => void): Promise<void> =>
    attempt(family, what, () => {
      const tx = new NftTransaction(table);
      fill(tx);
      nft.run(tx);
    });
  const commit = (what: string, fill: (batch: ElementBatch) => void): Promise<void> =>
    attempt(family, what, () => {
      const batch = new ElementBatch(table, { record: elements.wantsRecords });
      fill(batch);
      return elements.commit(batch);
    });
  await run("a table", (tx) => tx.addTable());
  for (const [name, spec] of [...setSpecs(family), ...affinitySetSpecs(family, SECONDS)]) {
    await run(`set ${name} with keys ${spec.key} and flags ${spec.flags?.join(", ") ?? "none"}`, (tx) =>
      tx.set(name, spec),
    );
  }
  for (const [name, { key, value }] of slotMaps(family)) {
    await commit(`map ${name} from ${key.join(" . ")} to ${value.join(" . ")}`, (batch) => batch.map(name, key, value));
  }
  const chains = chainsOf(options);
  for (const { name, base } of chains) {
    const hook = base === undefined ? "" : `, type ${base.type} hook ${base.hook} priority ${base.priority}`;
    await run(`chain ${name}${hook}`, (tx) => tx.chain(name, base));
  }
  for (const chain of chains) {
    for (const rule of chain.rules) {
      const text = printRule(rule, options);
      const what = `rule "${text}" of chain ${chain.name}`;
      if (isCompiled(chain)) await commit(what, (batch) => batch.rule(chain.name, compileRule(rule, family)));
      else await run(what, (tx) => tx.rule(chain.name, text));
    }
  }
}

function chainsOf(options: RuleOptions): readonly Chain[] {
  const chains = [...baseChains(options, [SECONDS]), ...SHAPES.flatMap((shape) => shapeChains(shape, options))];
  return [...new Map(chains.map((chain) => [chain.name, chain])).values()];
}

async function attempt(family: IpFamily, what: string, run: () => void | Promise<void>): Promise<void> {
  try {
    await run();
  } catch (cause) {
    if (!(cause instanceof NftError) && !isKernelError(cause)) throw cause;
    const modules = MODULES.filter(([pattern]) => pattern.test(what)).map(([, names]) => names(family));
    const fix =
      modules.length === 0
        ? "install a newer kernel"
        : `load ${modules.join(", ")} (modprobe), or install a kernel that has this feature`;
    throw new DataPlaneError("unsupported", `This kernel refuses what Services need in IPv${family}: ${what}; ${fix}`, {
      cause,
    });
  }
}
