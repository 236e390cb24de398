import type { FlagSet, FlagValues } from "#base/config";
import type { Estate } from "#base/estate";
import type { Program } from "../program/index.ts";

/** Flags without which a program has no claim of a kind that it can own. */
const SAMPLES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  "proxy-agent": { bindAddress: ["192.0.2.1"] },
};

/** The estates of programs with their default flags: what their code can own. Programs without an estate are left out. Pure. */
export function templatesOf(
  programs: readonly Pick<Program, "name" | "flags" | "estate">[],
): ReadonlyMap<string, Estate> {
  return new Map(
    programs.flatMap(({ name, flags, estate }) =>
      estate === undefined ? [] : [[name, estate({ ...initialValues(flags), ...SAMPLES[name] })] as const],
    ),
  );
}

/** The default values of flags. Pure. */
export function initialValues(flags: FlagSet): FlagValues<FlagSet> {
  return Object.fromEntries(Object.entries(flags).map(([key, flag]) => [key, flag.initial]));
}
