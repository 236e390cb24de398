/** Commands in pods for `kubectl exec`: a WebSocket request starts a process in the pod's namespace and relays its streams. */
export type { ExecPlace } from "./command.ts";
export type { ExecRequest } from "./request.ts";
export { serveExec } from "./server.ts";
