import { hostname } from "node:os";
import { type LeftOver, leftOvers } from "#features/suite-report";
import { openKernel } from "#kernel/net";
import { readMarks } from "../../shared/marks/index.ts";
import type { Program } from "../../shared/program/index.ts";
import { suiteProcesses } from "../../shared/suite/index.ts";

/** A route or rule with a mark of a program that is not in its configuration. */
export interface LeftOverFinding {
  readonly kind: "left-over";
  /** The name of this machine, which mostly is that of its Node. */
  readonly node: string;
  readonly text: string;
}

/** Compares the routes and rules of this machine with the estates of its programs. Rejects with `KernelError`. */
export async function findLeftOvers(
  listed: ReadonlyMap<string, () => Promise<Program>>,
): Promise<{ readonly findings: readonly LeftOverFinding[]; readonly notes: readonly string[] }> {
  const kernel = openKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  const running = new Set(suiteProcesses().map(({ program }) => program));
  const { facts, refused } = await readMarks(listed, stack, { running });
  return { findings: leftOvers(facts).map((left) => findingOf(left, hostname())), notes: refused };
}

/** A left-over as a finding of the machine `node`. Pure. */
export function findingOf({ program, what, remedy }: LeftOver, node: string): LeftOverFinding {
  const action =
    remedy === undefined
      ? "a user other than root has named the numbers: find out whose they are"
      : `if nobody else needs them: ${remedy}`;
  const text = `${what}: ${program} has made them with other numbers or has been removed; ${action}`;
  return { kind: "left-over", node, text };
}
