import { join } from "node:path";
import type { MarkFacts, ProgramClaims } from "#features/suite-report";
import type { NetStack } from "#kernel/net";
import { familiesOf } from "#kernel/rule";
import {
  bootId,
  type OwnedSet,
  ownNetns,
  RUN_FOLDER,
  readEstates,
  STATE_FOLDER,
  setOf,
  templatesOf,
} from "../estate/index.ts";
import type { Program } from "../program/index.ts";

/** The place of the estates; default: those of this machine. */
interface Folders {
  readonly run: string;
  readonly state: string;
}

/**
 * Reads the estates of programs, and this host's routes and rules. `running` are the programs that run: without an estate their numbers are not known, so that nothing is said of
 * objects with their defaults. Rejects with `KernelError`, and with what the loading of a program throws.
 */
export async function readMarks(
  listed: ReadonlyMap<string, () => Promise<Program>>,
  stack: Pick<NetStack, "routes" | "rules">,
  {
    running,
    folders = { run: RUN_FOLDER, state: STATE_FOLDER },
  }: { readonly running: ReadonlySet<string>; readonly folders?: Folders },
): Promise<{ readonly facts: MarkFacts; readonly refused: readonly string[] }> {
  const templates = templatesOf(await Promise.all(Array.from(listed.values(), (load) => load())));
  const { sets, refused } = readEstates(templates, {
    foldersOf: (program) => ({ run: join(folders.run, program), state: join(folders.state, program) }),
    boot: bootId(),
    netns: ownNetns(),
  });
  const { inForce, former } = splitSets(sets);
  const known = new Set(inForce.map(({ program }) => program));
  const defaults = Array.from(templates, ([program, estate]) => setOf(program, estate, "defaults")).filter(
    ({ program }) => !known.has(program) && !running.has(program),
  );
  const families = familiesOf(stack.rules);
  return {
    facts: {
      inForce,
      former: [...former, ...defaults],
      routes: families.flatMap((family) => stack.routes.list({ family })),
      rules: families.flatMap((family) => stack.rules.list(family)),
    },
    refused,
  };
}

/** The newest set of each program, which is the first one with kernel objects, and the others. Pure. */
export function splitSets(sets: readonly Pick<OwnedSet, "program" | "kernel" | "uid">[]): {
  readonly inForce: readonly ProgramClaims[];
  readonly former: readonly ProgramClaims[];
} {
  const current = sets.filter(({ kernel }) => kernel.length > 0);
  const groups = [...Map.groupBy(current, ({ program }) => program).values()];
  return { inForce: groups.flatMap((group) => group.slice(0, 1)), former: groups.flatMap((group) => group.slice(1)) };
}
