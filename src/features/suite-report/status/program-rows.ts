import type { Fact } from "#base/diagnosis";
import { forwardDrops } from "../forward-drops.ts";
import { type Instance, type InstanceAnswer, instanceKey, type SuiteFacts } from "./facts.ts";
import { compare, rowsOf } from "./rows.ts";
import type { NotReadyRow, ProgramRow, SuiteStatus } from "./suite-status.ts";

/** The value of a fact; `undefined` if it could not be read. */
export function known<T>(fact: Fact<T>): T | undefined {
  return "value" in fact ? fact.value : undefined;
}

/** As {@link known}, for a program that may not have been asked. */
export function answered<T>(fact: Fact<T> | undefined): T | undefined {
  return fact === undefined ? undefined : known(fact);
}

function versionOf(instance: Instance, answers: SuiteFacts["answers"]): string {
  const samples = answered(answers.get(instanceKey(instance))?.samples) ?? [];
  return samples.find(({ name }) => name === "isthmus_build_info")?.labels["version"] ?? instance.tag ?? "unknown";
}

/** A row for each program and version. */
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

/** Packet filters of others that drop what the node forwards. */
export function forwardDropsOf({ forward }: SuiteFacts): SuiteStatus["forwardDrops"] {
  const findings = answered(forward);
  return findings === undefined ? undefined : rowsOf(forwardDrops(findings));
}

/** The parts of a program that do not work, as text. */
function faultyParts(instance: Instance, answers: SuiteFacts["answers"]): readonly string[] {
  const { parts = [] } = answered(answers.get(instanceKey(instance))?.readiness) ?? {};
  return parts.filter(({ ok }) => !ok).map(({ name, text }) => `${name} ${text}`);
}

/** Rows for the parts of a ready instance that do not work. */
export function degradedRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const parts = faultyParts(instance, answers);
  if (parts.length === 0 || notReadyRow(instance, answers).length > 0) return [];
  const { program, name, node } = instance;
  return [{ program, name, node, why: parts.join("; ") }];
}

/** A row for an instance that is not ready. */
export function notReadyRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const readiness = answered(answers.get(instanceKey(instance))?.readiness);
  const isReady = instance.isReady && readiness?.isReady !== false;
  if (isReady) return [];
  const why = [...(instance.reason === "" ? [] : [instance.reason]), ...faultyParts(instance, answers)].join("; ");
  const { program, name, node } = instance;
  return [{ program, name, node, why: why === "" ? "it says that it is not ready" : why }];
}
