/**
 * Events of the Kubernetes API (`events.k8s.io/v1`), which `kubectl describe` shows with an object.
 *
 * Owns: writing in the background, counting repeats on the first event, limits. Does not know: what happened. A failure to write an event
 * affects nothing else.
 *
 * ```ts
 * const events = new EventRecorder(client, { controller: "coild", instance: nodeName, clock });
 * group.spawn((signal) => events.run({ signal }));
 * events.record({ regarding: regarding(resources.pods, pod), type: "Warning", reason: "NoSuchPool", note: "pool x does not exist" });
 * ```
 */
export {
  type EventInput,
  EventRecorder,
  MAX_PENDING_EVENTS,
  type Regarding,
  regarding,
  SERIES_MS,
} from "./recorder.ts";
