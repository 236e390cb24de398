/**
 * Controllers for workloads of a lab: a simple scheduler, pods of Deployments and DaemonSets, EndpointSlices of
 * Services.
 *
 * Owns: bindings, the pods of Deployments and DaemonSets and their status, EndpointSlices. Does not know: nodes, resources,
 * affinity between pods. A real control plane has controllers of its own.
 */

import { TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { KubeApi } from "#kube/client";
import { DaemonSetController } from "./daemon-set.ts";
import { DeploymentController } from "./deployment.ts";
import { EndpointSliceController } from "./endpoint-slices.ts";
import { Scheduler } from "./scheduler.ts";

/** Runs all controllers of this module until the signal aborts. */
export async function runWorkloads(
  deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock },
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const group = new TaskGroup(options.signal);
  const parts = [
    new Scheduler(deps),
    new DeploymentController(deps),
    new DaemonSetController(deps),
    new EndpointSliceController(deps),
  ];
  for (const part of parts) {
    group.spawn((signal) => part.run({ signal }));
  }
  await group.wait();
}
