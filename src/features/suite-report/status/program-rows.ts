import type { Fact } from "#base/diagnosis";
import { forwardDrops } from "../forward-drops.ts";
import { type Instance, type InstanceAnswer, instanceKey, type SuiteFacts } from "./facts.ts";
import type { SuiteStatus } from "./model.ts";
import { compare, rowsOf } from "./rows.ts";

/** One program in one version. */
export interface ProgramRow {
  readonly program: string;
  /** By its own metric, else by the tag of its image; `unknown` without either. */
  readonly version: string;
  readonly instances: number;
  readonly ready: number;
  readonly nodes: number;
  readonly restarts: number;
  /** How many of them answered this report. */
  readonly asked: number;
}

/** A program that is not ready, or a part of which does not work. */
export interface NotReadyRow {
  readonly program: string;
  readonly name: string;
  readonly node: string;
  readonly why: string;
}

export function known<T>(fact: Fact<T>): T | undefined {
  return "value" in fact ? fact.value : undefined;
}

export function answered<T>(fact: Fact<T> | undefined): T | undefined {
  return fact === undefined ? undefined : known(fact);
}

function versionOf(instance: Instance, answers: SuiteFacts["answers"]): string {
  const samples = answered(answers.get(instanceKey(instance))?.samples) ?? [];
  return samples.find(({ name }) => name === "isthmus_build_info")?.labels["version"] ?? instance.tag ?? "unknown";
}

export function programRows(instances: readonly Instance[], answers: SuiteFacts["answers"]): readonly ProgramRow[] {
  const groups = Map.groupBy(instances, (one) => `${one.program} ${versionOf(one, answers)}`);
  return Array.from(groups, ([key, group]): ProgramRow => {
    const [program = "", version = ""] = key.split(" ");
    return {
      program,
      version,
      instances: group.length,
      ready: group.filter((one) => notReadyRow(one, answers).length === 0).length,
      nodes: new Set(group.map(({ node }) => node).filter((node) => node !== "")).size,
      restarts: group.reduce((sum, { restarts }) => sum + restarts, 0),
      asked: group.filter((one) => isAnswered(answers.get(instanceKey(one)))).length,
    };
  }).sort((a, b) => compare(`${a.program} ${a.version}`, `${b.program} ${b.version}`));
}

function isAnswered(answer: InstanceAnswer | undefined): boolean {
  return answered(answer?.readiness) !== undefined || answered(answer?.samples) !== undefined;
}

export function forwardDropsOf({ forward }: SuiteFacts): SuiteStatus["forwardDrops"] {
  const findings = answered(forward);
  return findings === undefined ? undefined : rowsOf(forwardDrops(findings));
}

/** The parts of a program that do not work, as text. */
function faultyParts(instance: Instance, answers: SuiteFacts["answers"]): readonly string[] {
  const { parts = [] } = answered(answers.get(instanceKey(instance))?.readiness) ?? {};
  return parts.filter(({ ok }) => !ok).map(({ name, text }) => `${name} ${text}`);
}

export function degradedRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const parts = faultyParts(instance, answers);
  if (parts.length === 0 || notReadyRow(instance, answers).length > 0) return [];
  const { program, name, node } = instance;
  return [{ program, name, node, why: parts.join("; ") }];
}

export function notReadyRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const readiness = answered(answers.get(instanceKey(instance))?.readiness);
  const isReady = instance.isReady && readiness?.isReady !== false;
  if (isReady) return [];
  const why = [...(instance.reason === "" ? [] : [instance.reason]), ...faultyParts(instance, answers)].join("; ");
  const { program, name, node } = instance;
  return [{ program, name, node, why: why === "" ? "it says that it is not ready" : why }];
}
