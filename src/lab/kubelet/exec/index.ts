/** Commands in pods, as `kubectl exec` asks for them: WebSockets in, a process in the pod's namespace, its streams back. */
export type { ExecPlace } from "./command.ts";
export type { ExecRequest } from "./request.ts";
export { serveExec } from "./server.ts";
