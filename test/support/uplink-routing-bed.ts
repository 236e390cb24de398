import type { TestContext } from "node:test";
import type { Settings } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import type { NetStack } from "#kernel/net";
import { applyRouting, planRouting } from "../../src/features/uplink-routing/routing/index.ts";
import { readKernel } from "../../src/features/uplink-routing/state/index.ts";
import { Bed } from "./uplink-wan-bed.ts";

/** The settings of a bed with both its uplinks in one mode, and more. */
export function settingsOf(bed: Bed, rest: Readonly<Record<string, unknown>> = {}, mode = "static"): Settings {
  const uplinks = bed.uplinkEntries.map((entry) =>
    mode === "static" ? entry : { name: entry["name"], interface: entry["interface"], cost: entry["cost"], mode },
  );
  return parseSettings(JSON.stringify({ version: 1, uplinks, ...rest }), "test").settings;
}

/** The kernel ports and settings that routing uses. */
export type Ports = Pick<NetStack, "links" | "addresses" | "routes" | "rules">;

/** Runs one pass; returns the number of its changes. */
export function sync(stack: Ports, settings: Settings): number {
  const { changes } = planRouting(settings, readKernel(stack));
  applyRouting(stack, changes);
  return changes.length;
}

const tidy = (text: string): string[] =>
  text
    .split("\n")
    .map((line) => line.trim().replaceAll(/\s+/g, " "))
    .filter((line) => line !== "");

/** A table as ip(8) shows it, line by line; empty if there is no such table. */
export const routes = (bed: Bed, table: number | string, family = "-4"): string[] =>
  tidy(bed.run("sh", "-c", `ip ${family} route show table ${table} 2>/dev/null || true`));

/** The rules as ip(8) shows them, in their order. */
export const rules = (bed: Bed, family = "-4"): string[] => tidy(bed.run("ip", family, "rule", "show"));

/** All rules, and all routes but those of the local table. Rules of the same priority are in the order in which they were added. */
export const everything = (bed: Bed): string =>
  [...rules(bed).sort(), ...rules(bed, "-6").sort(), ...routes(bed, "all"), ...routes(bed, "all", "-6")]
    .filter((line) => !/table local|^(local|broadcast|multicast|anycast) /.test(line))
    .join("\n");

/** 0 for a missing interface. */
export const indexOf = (bed: Bed, ifName: string): number => bed.stack.links.get({ name: ifName })?.index ?? 0;

/** A bed that is disposed with its test. */
export async function makeBed(t: TestContext): Promise<Bed> {
  const bed = await Bed.create();
  t.after(() => bed[Symbol.asyncDispose]());
  return bed;
}
