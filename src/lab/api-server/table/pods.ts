import { asArray, asObject, asString, at, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Column } from "../resources/types.ts";
import { AGE, field, NAME, scalar, text } from "./columns.ts";

function statuses(object: KubeObject, member: string): JsonObject[] {
  return asArray(at(object, "status", member)).map((item) => asObject(item));
}

/** The fault of the first init container that has failed, as kubectl shows it. */
function initReason(object: KubeObject): string | undefined {
  const all = statuses(object, "initContainerStatuses");
  for (const [index, status] of all.entries()) {
    const terminated = at(status, "state", "terminated");
    if (terminated !== undefined && at(terminated, "exitCode") === 0) continue;
    if (terminated !== undefined)
      return `Init:${asString(at(terminated, "reason")) || `ExitCode:${scalar(at(terminated, "exitCode"))}`}`;
    const waiting = asString(at(status, "state", "waiting", "reason"));
    if (waiting !== "" && waiting !== "PodInitializing") return `Init:${waiting}`;
    return `Init:${index}/${asArray(at(object, "spec", "initContainers")).length}`;
  }
  return undefined;
}

function containerReason(object: KubeObject, fallback: string): string {
  let reason = fallback;
  let running = false;
  for (const status of statuses(object, "containerStatuses").reverse()) {
    const waiting = asString(at(status, "state", "waiting", "reason"));
    const terminated = at(status, "state", "terminated");
    if (waiting !== "") reason = waiting;
    else if (terminated !== undefined)
      reason = asString(at(terminated, "reason")) || `ExitCode:${scalar(at(terminated, "exitCode"))}`;
    else if (status["ready"] === true && at(status, "state", "running") !== undefined) running = true;
  }
  return reason === "Completed" && running ? "Running" : reason;
}

/** The STATUS column. */
export function podStatus(object: KubeObject): string {
  const phase = asString(at(object, "status", "phase"));
  const own = asString(at(object, "status", "reason")) || phase;
  const reason = initReason(object) ?? containerReason(object, own);
  if (object.metadata.deletionTimestamp === undefined) return reason;
  return at(object, "status", "reason") === "NodeLost" ? "Unknown" : "Terminating";
}

function ready(object: KubeObject): string {
  const count = statuses(object, "containerStatuses").filter((status) => status["ready"] === true).length;
  return `${count}/${asArray(at(object, "spec", "containers")).length}`;
}

function restarts(object: KubeObject): Json {
  return statuses(object, "containerStatuses").reduce((sum, status) => sum + Number(status["restartCount"] ?? 0), 0);
}

function readinessGates(object: KubeObject): string {
  const gates = asArray(at(object, "spec", "readinessGates")).map((gate) => asObject(gate)["conditionType"]);
  if (gates.length === 0) return "<none>";
  const conditions = asArray(at(object, "status", "conditions")).map((item) => asObject(item));
  const passed = gates.filter((gate) => conditions.some((item) => item["type"] === gate && item["status"] === "True"));
  return `${passed.length}/${gates.length}`;
}

/** Columns of pods. */
export const podColumns: readonly Column[] = [
  NAME,
  text("Ready", ready),
  text("Status", podStatus),
  { name: "Restarts", type: "integer", cell: restarts },
  AGE,
  field("IP", "status.podIP", "<none>", 1),
  field("Node", "spec.nodeName", "<none>", 1),
  field("Nominated Node", "status.nominatedNodeName", "<none>", 1),
  text("Readiness Gates", readinessGates, 1),
];
